"""A table that the user supplies: by construct, by name, by the setting `table_name`."""

import json
import re
from typing import Any

import pytest
from aws_cdk import App, RemovalPolicy, Stack, aws_dynamodb, aws_iam, aws_kms

from infra.synth import ROOT
from xorack.cdk.acker import Acker
from xorack.cdk.settings import Settings

from .templates import HERE, Template

ARN = "arn:aws:dynamodb:eu-west-1:{}:table/chains"
CHECK = {"dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"}
Attribute, Type = aws_dynamodb.Attribute, aws_dynamodb.AttributeType
NUMBER, STRING = Type.NUMBER, Type.STRING


DUE = ("due", "due_shard", NUMBER, "due_at", NUMBER)


def own_table(stack: Stack, **changes: Any) -> aws_dynamodb.Table:
    """A table for chains, with changes; `due` is the index: name, partition, sort key."""
    index = changes.pop("due", DUE)
    properties: dict[str, Any] = {
        "partition_key": Attribute(name="tag", type=STRING),
        "billing_mode": aws_dynamodb.BillingMode.PAY_PER_REQUEST,
        "time_to_live_attribute": "expires_at",
        "removal_policy": RemovalPolicy.RETAIN,
        **changes,
    }
    table = aws_dynamodb.Table(stack, "Table", **properties)
    name, shard, shard_type, at, at_type = index
    table.add_global_secondary_index(
        index_name=name,
        partition_key=Attribute(name=shard, type=shard_type),
        sort_key=Attribute(name=at, type=at_type),
        projection_type=aws_dynamodb.ProjectionType.KEYS_ONLY,
    )
    return table


def table_v2(stack: Stack, **changes: Any) -> aws_dynamodb.TableV2:
    index = aws_dynamodb.GlobalSecondaryIndexPropsV2(
        index_name="due",
        partition_key=Attribute(name="due_shard", type=NUMBER),
        sort_key=Attribute(name="due_at", type=NUMBER),
    )
    properties: dict[str, Any] = {
        "partition_key": Attribute(name="tag", type=STRING),
        "time_to_live_attribute": "expires_at",
        "global_secondary_indexes": [index],
        **changes,
    }
    return aws_dynamodb.TableV2(stack, "Table", **properties)


def imported(stack: Stack, account: str = HERE.account) -> aws_dynamodb.ITable:
    return aws_dynamodb.Table.from_table_arn(stack, "Table", ARN.format(account))


@pytest.mark.parametrize("make", [own_table, table_v2])
def test_a_table_of_the_app_is_used_and_needs_no_check_later(here, make):
    # The stream is the user's own affair.
    stream = {own_table: "stream", table_v2: "dynamo_stream"}[make]
    table = make(here, **{stream: aws_dynamodb.StreamViewType.KEYS_ONLY})
    acker = Acker(here, "Acker", table=table)
    assert acker.table is table
    template = Template.of_stack(here)
    tables = {*template.of("AWS::DynamoDB::Table"), *template.of("AWS::DynamoDB::GlobalTable")}
    (name,) = tables
    for function in ("consumer", "sweeper", "widget"):
        assert template.environment(function)["TABLE_NAME"] == {"Ref": name}
        assert "CHECK_TABLE" not in template.environment(function)
        assert CHECK.isdisjoint(template.allowed(function)[name])


def test_the_tables_of_the_handbook_work_in_any_environment_and_across_stacks():
    page = (ROOT / "docs" / "state.md").read_text(encoding="utf-8")
    by_name, own = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    app = App()
    state, stack = Stack(app, "State"), Stack(app, "Mine")
    names: dict[str, Any] = {"Acker": Acker, "aws_dynamodb": aws_dynamodb}
    exec(by_name, {**names, "self": stack})
    names["self"] = state
    exec(own, names)
    Acker(stack, "Other", table=names["table"])
    outputs = Template.of_stack(state).body["Outputs"].values()
    (imported,) = (one for one in outputs if "Ref" in one["Value"])
    functions = Template.of_stack(stack).of("AWS::Lambda::Function").values()
    tables = [json.dumps(one["Environment"]["Variables"]["TABLE_NAME"]) for one in functions]
    across = json.dumps({"Fn::ImportValue": imported["Export"]["Name"]})
    assert sorted(tables) == sorted([json.dumps("chains")] * 3 + [across] * 3)


def test_an_imported_table_is_checked_by_those_that_write(here):
    key = aws_kms.Key(here, "Key")
    table = aws_dynamodb.Table.from_table_attributes(
        here, "Table", table_name="chains", encryption_key=key
    )
    acker = Acker(here, "Acker", table=table)
    acker.grant_read(aws_iam.Role(here, "Reader", assumed_by=aws_iam.AccountRootPrincipal()))
    template = Template.of_stack(here)
    assert not template.of("AWS::DynamoDB::Table")
    for function, checks in (("consumer", True), ("sweeper", True), ("widget", False)):
        environment, allowed = template.environment(function), template.allowed(function)
        (arn,) = (one for one in allowed if one.endswith("table/chains"))
        assert environment["TABLE_NAME"] == "chains"
        assert environment["CHECK_TABLE"] == "true"
        assert (allowed[arn] >= CHECK) is checks
        assert any("kms:Decrypt" in actions for actions in allowed.values())


KEYS = "due_shard (N), due_at (N)"
# tests/functional/test_table_check.py has more of what can be wrong.
WRONG = [
    (
        {"due": ("due", "shard", NUMBER, "due_at", STRING)},
        "key of index due of",
        "shard (N), due_at (S)",
        KEYS,
    ),
    ({"time_to_live_attribute": "ttl"}, "time to live of", "ttl", "expires_at"),
]


@pytest.mark.parametrize(("changes", "field", "value", "expected"), WRONG)
def test_a_table_that_cannot_hold_chains_is_rejected(here, changes, field, value, expected):
    line = f"{field} table Mine/Table: '{value}', expected {expected}"
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        Acker(here, "Acker", table=own_table(here, **changes))


def test_replicas_are_rejected(here):
    table = table_v2(here, replicas=[aws_dynamodb.ReplicaTableProps(region="eu-north-1")])
    with pytest.raises(ValueError, match=r"replicas of table Mine/Table: .*eu-north-1.*, expected"):
        Acker(here, "Acker", table=table)


def test_a_table_of_another_key_name_goes_with_its_setting(here):
    table = own_table(here, partition_key=Attribute(name="file", type=STRING))
    acker = Acker(here, "Acker", table=table, settings=Settings(partition_key="file"))
    assert acker.table is table


def test_a_table_of_another_account_is_rejected(here):
    line = "table: Mine/Table is in 222222222222, expected 111111111111"
    with pytest.raises(ValueError, match=line):
        Acker(here, "Acker", table=imported(here, "222222222222"))


def test_two_tables_are_rejected(here):
    line = "table: got Mine/Table, and the setting `table_name` is 'old': expected one of the two"
    with pytest.raises(ValueError, match=line):
        Acker(here, "Acker", table=imported(here), settings=Settings(table_name="old"))
