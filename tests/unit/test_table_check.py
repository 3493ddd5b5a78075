"""Descriptions, by DynamoDB, of tables in which no chain would be safe."""

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
    check_state("chains", HERE, LIVE)
    # DynamoDB takes up to an hour to switch it on.
    used = {"TableStatus": "UPDATING", "Replicas": REPLICAS[:1]}
    check_state("chains", HERE | used, LIVE | {"TimeToLiveStatus": "ENABLING"})


def key(*names):
    kinds = zip(names, ("HASH", "RANGE"), strict=False)
    return [{"AttributeName": name, "KeyType": kind} for name, kind in kinds]


def table(*keys, due=("due_shard", "due_at"), types="N", **index):
    """A table as DynamoDB describes it, with another key or index."""
    names = dict.fromkeys((*keys, *due), types) | {keys[0]: "S"}
    index = {"IndexName": "due", "KeySchema": key(*due), **index}
    return {
        "KeySchema": key(*keys),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in names.items()
        ],
        **({"GlobalSecondaryIndexes": [index]} if due else {}),
    }


KEYS = "due_shard (N), due_at (N)"
NO_INDEX = f"indexes of table chains: 'none', expected due, with the key {KEYS}"


@pytest.mark.parametrize(
    ("described", "line"),
    [
        (table("id"), "key of table chains: 'id (S)', expected tag (S)"),
        (table("tag", "at"), "key of table chains: 'tag (S), at (N)', expected tag (S)"),
        (table("tag", due=()), NO_INDEX),
        (
            table("tag", due=("due_at", "due_shard")),
            f"key of index due of table chains: 'due_at (N), due_shard (N)', expected {KEYS}",
        ),
        (
            table("tag", types="S"),
            f"key of index due of table chains: 'due_shard (S), due_at (S)', expected {KEYS}",
        ),
        # It is awaited.
        (
            table("tag", IndexStatus="CREATING"),
            "index due of table chains: 'CREATING', expected ACTIVE or UPDATING",
        ),
    ],
)
def test_a_table_that_cannot_hold_chains_is_named(described, line):
    with pytest.raises(ArgumentError) as caught:
        check_definition("chains", described, "tag")
    assert str(caught.value) == line
    check_definition("chains", table("tag"), "tag")
