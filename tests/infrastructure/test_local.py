"""The resources of the tests are those of the template."""

import pytest

from tests.support.in_process import definitions


@pytest.mark.parametrize(("name", "key"), [("template", "tag"), ("varied", "file")])
def test_the_handwritten_definitions_are_the_templates(request, name, key):
    template, handwritten = request.getfixturevalue(name), definitions(key)
    (_, table), (_, queue) = template.table(), template.queue()
    assert {name: table[name] for name in handwritten.table} == handwritten.table
    assert table["TimeToLiveSpecification"]["AttributeName"] == handwritten.ttl_attribute
    received = int(queue["RedrivePolicy"]["maxReceiveCount"])
    assert name == "varied" or received == handwritten.max_receive_count
