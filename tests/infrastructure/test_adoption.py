"""A table that the user supplies: by construct, by name, by the setting `table_name`."""

import re
from typing import Any

import pytest
from aws_cdk import App, Stack, aws_dynamodb, aws_iam, aws_kms

from xorack.cdk.acker import Acker
from xorack.cdk.settings import Settings

from .templates import HERE, Template

ARN = "arn:aws:dynamodb:eu-west-1:{}:table/chains"
CHECK = {"dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"}
Attribute, Type = aws_dynamodb.Attribute, aws_dynamodb.AttributeType
REPLICA = aws_dynamodb.ReplicaTableProps(region="eu-north-1")


def own_table(stack: Stack, index: str = "due_shard", **changes: Any) -> aws_dynamodb.TableV2:
    """A table for chains, with changes; `index` is the partition key of its index."""
    due = aws_dynamodb.GlobalSecondaryIndexPropsV2(
        index_name="due",
        partition_key=Attribute(name=index, type=Type.NUMBER),
        sort_key=Attribute(name="due_at", type=Type.NUMBER),
    )
    properties: dict[str, Any] = {
        "partition_key": Attribute(name="tag", type=Type.STRING),
        "time_to_live_attribute": "expires_at",
        "global_secondary_indexes": [due],
        **changes,
    }
    return aws_dynamodb.TableV2(stack, "Table", **properties)


def imported(stack: Stack, account: str = HERE.account) -> aws_dynamodb.ITable:
    return aws_dynamodb.Table.from_table_arn(stack, "Table", ARN.format(account))


def test_a_table_of_the_app_is_used_and_needs_no_check_later(here):
    # The stream is the user's own affair.
    table = own_table(here, dynamo_stream=aws_dynamodb.StreamViewType.KEYS_ONLY)
    acker = Acker(here, "Acker", table=table)
    assert acker.table is table
    template = Template.of_stack(here)
    (name,) = template.of("AWS::DynamoDB::GlobalTable")
    for function in ("consumer", "sweeper"):
        assert template.environment(function)["TABLE_NAME"] == {"Ref": name}
        assert "CHECK_TABLE" not in template.environment(function)
        assert CHECK.isdisjoint(template.allowed(function)[name])


def test_an_imported_table_is_checked_by_those_that_write(here):
    key = aws_kms.Key(here, "Key")
    table = aws_dynamodb.Table.from_table_attributes(
        here, "Table", table_name="chains", encryption_key=key
    )
    acker = Acker(here, "Acker", table=table)
    acker.grant_read(aws_iam.Role(here, "Reader", assumed_by=aws_iam.AccountRootPrincipal()))
    template = Template.of_stack(here)
    assert not template.of("AWS::DynamoDB::Table")
    for function in ("consumer", "sweeper"):
        environment, allowed = template.environment(function), template.allowed(function)
        (arn,) = (one for one in allowed if one.endswith("table/chains"))
        assert environment["TABLE_NAME"] == "chains"
        assert environment["CHECK_TABLE"] == "true"
        assert allowed[arn] >= CHECK
        assert any("kms:Decrypt" in actions for actions in allowed.values())


KEYS = [f"arn:aws:kms:eu-west-1:111111111111:key/{name}" for name in ("acker", "table")]
NO_KEY, ACKERS, ITS_OWN = None, *KEYS
SOURCES = [
    ("created", NO_KEY, NO_KEY),
    ("created", ACKERS, ACKERS),
    *((source, key, key) for source in ("name", "import") for key in (NO_KEY, ACKERS)),
    *(
        (source, ackers, tables)
        for source in ("import with its key", "construct")
        for ackers in (NO_KEY, ACKERS)
        for tables in (NO_KEY, ACKERS, ITS_OWN)
        # An imported table that names no key is taken for one with the acker's key.
        if tables or source == "construct"
    ),
]
"""How the acker gets its table, the acker's key, and the table's key."""


def statements(source: str, ackers: str | None, tables: str | None) -> dict[str, Any]:
    """The actions of each role on the table, its index and its key."""
    stack = Stack(App(), "Mine", env=HERE)
    keys = {arn: aws_kms.Key.from_key_arn(stack, arn[-5:], arn) for arn in KEYS}
    key: Any = keys.get(tables or "")
    encryption = key and aws_dynamodb.TableEncryptionV2.customer_managed_key(key)
    table = {
        "import": lambda: imported(stack),
        "import with its key": lambda: aws_dynamodb.Table.from_table_attributes(
            stack, "Table", table_name="chains", encryption_key=key
        ),
        "construct": lambda: own_table(stack, encryption=encryption),
    }.get(source, lambda: None)()
    settings = Settings(policies_ready=True, table_name="chains" if source == "name" else None)
    acker = Acker(
        stack, "Acker", table=table, settings=settings, encryption_key=keys.get(ackers or "")
    )
    roles = {
        name: aws_iam.Role(stack, name, assumed_by=aws_iam.AccountRootPrincipal())
        for name in ("Reader", "Operator")
    }
    acker.grant_read(roles["Reader"])
    acker.grant_operate(roles["Operator"])
    template = Template.of_stack(stack)
    found = {name: template.allowed(name) for name in ("consumer", "sweeper")}
    found |= {
        name: template.granted(stack.get_logical_id(role.node.default_child))
        for name, role in roles.items()
    }
    return {
        role: {
            "key" if on == tables else re.sub(r"^.*(table/chains|Table\w{8})", "table", on): (
                actions - CHECK
            )
            for on, actions in rights.items()
            if on == tables or re.search(r"table/chains|Table\w{8}", on)
        }
        for role, rights in found.items()
    }


@pytest.mark.parametrize(("source", "ackers", "tables"), SOURCES)
def test_an_adopted_table_gives_the_rights_that_a_created_one_gives(source, ackers, tables):
    created = statements("created", tables and ACKERS, tables and ACKERS)
    assert statements(source, ackers, tables) == created
    assert all(("key" in rights) is bool(tables) for rights in created.values())


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"index": "shard"}, r"key of index due of table Mine/Table: 'shard \(N\), due_at \(N\)'"),
        ({"time_to_live_attribute": "ttl"}, "time to live of table Mine/Table: 'ttl', expected"),
        ({"replicas": [REPLICA]}, "replicas of table Mine/Table: .*eu-north-1.*, expected"),
    ],
)
def test_a_table_that_cannot_hold_chains_is_rejected(here, changes, line):
    """tests/functional/test_table_check.py has more of what can be wrong."""
    with pytest.raises(ValueError, match=line):
        Acker(here, "Acker", table=own_table(here, **changes))


def test_a_table_of_another_account_is_rejected(here):
    line = "table: Mine/Table is in the account 222222222222, expected 111111111111"
    with pytest.raises(ValueError, match=line):
        Acker(here, "Acker", table=imported(here, "222222222222"))


def test_two_tables_are_rejected(here):
    line = "table: Mine/Table was passed, and the setting `table_name` is 'old'"
    with pytest.raises(ValueError, match=line):
        Acker(here, "Acker", table=imported(here), settings=Settings(table_name="old"))
