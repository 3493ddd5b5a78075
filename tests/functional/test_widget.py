"""The function of the dashboard's widget, over moto in process."""

import re
import time

import pytest

from lambda_src.widget import handler
from tests.support.cli import apply, put_invalid_item
from tests.support.functions import Context
from xorack.aws import schema
from xorack.core.errors import ArgumentError
from xorack.core.request import Request
from xorack.core.stamp import traced

CONTEXT = {"widgetContext": {"dashboardName": "xorack", "theme": "light", "params": {}}}


@pytest.fixture
def world(aws, monkeypatch):
    for name, value in aws.environ().items():
        if name in ("TABLE_NAME", "PARTITION_KEY"):
            monkeypatch.setenv(name, value)
        else:  # the widget's role may not use the others
            monkeypatch.delenv(name, raising=False)
    return aws


def shown_tags(page):
    return re.findall(r'<div class="tag"[^>]*>(.*?)</div>', page)


def test_unfinished_chains_are_shown_by_deadline(world):
    apply(
        world,
        Request.create("late", "c", traced(1), timeout=0.001),
        Request.create("tomorrow", "c", traced(2), timeout=86_000),
        Request.create("soon", "c", traced(0xABCDEF), timeout=60),
        Request.create("done", "c", traced(4), timeout=60),
        Request.stamp_("done", "d", traced(4), finished=1),
        Request.stamp_("uncreated", "s", traced(5), started=1),
    )
    time.sleep(0.01)
    page = handler(CONTEXT, None)
    assert shown_tags(page) == ["late", "soon", "tomorrow", "uncreated"]
    for text in ("4 unfinished chains.", "1 past the deadline.", "1 not created yet."):
        assert text in page
    assert "0000000000abcdef" in page


def test_the_work_is_bounded(world, sqs):
    apply(world, *(Request.create(f"t{n}", "c", traced(n + 1), timeout=60 + n) for n in range(12)))
    sqs.names.clear()
    page = handler({"limit": 5, **CONTEXT}, Context())
    assert shown_tags(page) == ["t0", "t1", "t2", "t3", "t4"]
    assert "The 5 unfinished chains with the earliest deadlines; there are more." in page
    assert sqs.names == ["Query"] * schema.DUE_SHARDS + ["BatchGetItem"]


def test_an_item_that_is_not_a_chain_hides_no_chain(world):
    apply(world, Request.create("good", "c", traced(1)))
    put_invalid_item(world, "bad", due_shard={"N": "0"}, due_at={"N": "1"})
    page = handler(CONTEXT, None)
    assert shown_tags(page) == ["good"]
    assert "bad cannot be read" in page


def test_an_empty_table_in_the_theme_of_the_dashboard(world):
    dark = {"widgetContext": {"theme": "dark"}}
    pages = [handler(event, None).split("</style>") for event in (CONTEXT, dark)]
    assert all("No unfinished chain has a deadline." in body for _, body in pages)
    assert pages[0][0] != pages[1][0]


def test_without_a_table_it_describes_itself_and_names_the_setting(monkeypatch):
    monkeypatch.delenv("TABLE_NAME", raising=False)
    description = handler({"describe": True}, None)
    assert description.lstrip().startswith("## Unfinished chains")
    assert "**limit**" in description
    with pytest.raises(ArgumentError, match="TABLE_NAME"):
        handler(CONTEXT, None)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("TABLE_NAME", "gone", "ResourceNotFoundException"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9/<b>", "http://127.0.0.1:9/&lt;b&gt;"),
    ],
)
def test_the_page_says_why_the_table_cannot_be_read(world, monkeypatch, name, value, reason):
    monkeypatch.setenv(name, value)
    page = handler(CONTEXT, None)
    assert "The chains cannot be read." in page
    assert reason in page
    assert page.endswith("</div>")


@pytest.mark.parametrize("limit", [0, 101, "20", 2.0, True, None])
def test_an_invalid_limit_is_named(world, limit):
    with pytest.raises(ArgumentError, match=r"limit: .*, expected a whole number from 1 to 100"):
        handler({"limit": limit, **CONTEXT}, None)
