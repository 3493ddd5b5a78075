"""What DynamoDB says of a table that no emulator can be brought to say."""

import pytest

from xorack.aws.table_check import check_definition, check_state
from xorack.core.errors import ArgumentError

LIVE = {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
HERE = {"TableStatus": "ACTIVE", "TableArn": "arn:aws:dynamodb:eu-west-1:1:table/chains"}
REPLICAS = [{"RegionName": name} for name in ("eu-west-1", "us-east-1")]


@pytest.mark.parametrize(
    ("table", "time_to_live", "line"),
    [
        ({"TableStatus": "CREATING"}, LIVE, "status of table chains: 'CREATING', expected ACTIVE"),
        ({"Replicas": REPLICAS}, LIVE, "replicas of table chains: 'us-east-1', expected none"),
        ({}, LIVE | {"TimeToLiveStatus": "DISABLING"}, "time to live of table chains: 'off'"),
    ],
)
def test_a_state_in_which_no_chain_is_safe_is_named(table, time_to_live, line):
    with pytest.raises(ArgumentError, match=f"^{line}"):
        check_state("chains", HERE | table, time_to_live)


@pytest.mark.parametrize(
    ("table", "time_to_live"),
    [
        ({}, LIVE),
        ({"TableStatus": "UPDATING", "Replicas": REPLICAS[:1]}, LIVE),
        # DynamoDB takes up to an hour.
        ({}, LIVE | {"TimeToLiveStatus": "ENABLING"}),
    ],
)
def test_a_table_in_use_is_fine(table, time_to_live):
    check_state("chains", HERE | table, time_to_live)


def test_an_index_that_is_being_built_is_awaited():
    def key(*names):
        kinds = zip(names, ("HASH", "RANGE"), strict=False)
        return [{"AttributeName": name, "KeyType": kind} for name, kind in kinds]

    types = {"tag": "S", "due_shard": "N", "due_at": "N"}
    index = {"IndexName": "due", "KeySchema": key("due_shard", "due_at")}
    table = {
        "KeySchema": key("tag"),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in types.items()
        ],
        "GlobalSecondaryIndexes": [index | {"IndexStatus": "CREATING"}],
    }
    line = "^index due of table chains: 'CREATING', expected ACTIVE or UPDATING$"
    with pytest.raises(ArgumentError, match=line):
        check_definition("chains", table, "tag")
    check_definition("chains", {**table, "GlobalSecondaryIndexes": [index]}, "tag")
