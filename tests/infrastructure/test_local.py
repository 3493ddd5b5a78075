"""moto's resources are those of the template."""

import pytest

from tests.support.in_process import create_resources, definitions, definitions_of, locked_aws


@pytest.mark.parametrize(("name", "key"), [("template", "tag"), ("varied", "file")])
def test_the_handwritten_definitions_are_the_templates(request, name, key):
    read, handwritten = definitions_of(request.getfixturevalue(name).body), definitions(key)
    (index,) = read.table["GlobalSecondaryIndexes"]
    same = {key: value for key, value in index.items() if key != "WarmThroughput"}
    assert {**read.table, "GlobalSecondaryIndexes": [same]} == handwritten.table
    assert read.ttl_attribute == handwritten.ttl_attribute
    assert name == "varied" or read.max_receive_count == handwritten.max_receive_count


def test_moto_takes_the_resources_of_the_template(template):
    with locked_aws() as started:
        resources = create_resources(started, definitions_of(template.body))
        attributes = resources.client("sqs").get_queue_attributes(
            QueueUrl=resources.queue_url, AttributeNames=["VisibilityTimeout"]
        )["Attributes"]
        ttl = resources.client("dynamodb").describe_time_to_live(TableName=resources.table_name)
    assert attributes["VisibilityTimeout"] == str(template.queue()[1]["VisibilityTimeout"])
    assert ttl["TimeToLiveDescription"] == {
        "TimeToLiveStatus": "ENABLED",
        "AttributeName": "expires_at",
    }
