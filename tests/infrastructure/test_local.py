"""What tests run on in process is what the template says, and the template can be run from."""

from __future__ import annotations

import pytest

from tests.support.in_process import create_resources, definitions, definitions_of, locked_aws


@pytest.mark.parametrize("key", ["tag", "chain"])
def test_the_definitions_by_hand_are_the_templates(synthesise, key):
    read = definitions_of(synthesise(partition_key=key).body)
    by_hand = definitions(key)
    assert read.table == by_hand.table
    assert read.ttl_attribute == by_hand.ttl_attribute
    assert read.max_receive_count == by_hand.max_receive_count


def test_the_templates_resources_can_be_created_in_process(template):
    with locked_aws() as started:
        resources = create_resources(started, definitions_of(template.body))
        attributes = resources.client("sqs").get_queue_attributes(
            QueueUrl=resources.queue_url, AttributeNames=["VisibilityTimeout"]
        )["Attributes"]
        expiry = resources.client("dynamodb").describe_time_to_live(TableName=resources.table_name)[
            "TimeToLiveDescription"
        ]
    (queue,) = (
        held["Properties"]
        for held in template.of("AWS::SQS::Queue").values()
        if "RedrivePolicy" in held["Properties"]
    )
    assert attributes["VisibilityTimeout"] == str(queue["VisibilityTimeout"])
    assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
