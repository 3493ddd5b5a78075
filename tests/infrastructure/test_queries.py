"""The saved queries of Logs Insights: over all logs, and in the words of the lines."""

import re

import pytest

from tests.support.events import creates, event
from tests.support.lambda_runtime import run_function

# What CloudWatch and Lambda add, and what lines of other moments have.
OTHERS = {"@timestamp", "@log", "record", "type", "status", "event_id"}
WORDS = {"as", "asc", "and", "coalesce", "desc", "in", "like", "or", "text"}


@pytest.fixture(scope="module")
def lines():
    """Lines of a consumer whose calls are all denied."""
    return run_function("consumer", event(*creates("a", "b"), "no JSON")).lines


def queries(template):
    return template.of("AWS::Logs::QueryDefinition").values()


def test_they_name_fields_and_messages_of_the_lines(template, lines):
    fields = {name for line in lines for name in line} | OTHERS
    messages = {line["message"] for line in lines if "message" in line}
    for query in queries(template):
        text = query["QueryString"]
        assert set(re.findall(r'message = "(.*?)"', text)) <= messages
        commands = re.sub(r'"[^"]*"', "", text)
        names = set(re.findall(r"(?:fields|filter|sort) ([^|]*)", commands))
        used = {word for part in names for word in re.findall(r"@?[A-Za-z_]+(?![\w(])", part)}
        # After a dot stands a field of an object.
        nested = {after for part in names for after in re.findall(r"\.(\w+)", part)}
        assert used - nested - WORDS <= fields, text


def test_the_queries_for_a_tag_an_id_and_errors_find_their_line(template, lines):
    texts = {query["Name"].partition("/")[2]: query["QueryString"] for query in queries(template)}
    written = next(line for line in lines if line.get("message") == "chains not written")
    for title, condition, field, value in (
        ("one chain by tag", 'tag = "TAG"', "tag", "a"),
        ("one message by id", 'message_ids like "MESSAGE-ID"', "message_ids", "m0 m1"),
        ("errors", f'level in ["{written["level"]}"', "level", written["level"]),
    ):
        assert condition in texts[title]
        assert written[field] == value
