"""The resources of the tests are those of the template."""

import pytest

from tests.support.in_process import MAX_RECEIVES, table_definition
from xorack.aws import schema


@pytest.mark.parametrize(("name", "key"), [("template", "tag"), ("varied", "file")])
def test_the_handwritten_definitions_are_the_templates(request, name, key):
    template, handwritten = request.getfixturevalue(name), table_definition(key)
    (_, table), (_, queue) = template.table(), template.queue()
    assert {name: table[name] for name in handwritten} == handwritten
    assert table["TimeToLiveSpecification"]["AttributeName"] == schema.EXPIRES_AT
    assert name == "varied" or int(queue["RedrivePolicy"]["maxReceiveCount"]) == MAX_RECEIVES
