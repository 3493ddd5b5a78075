"""Notebooks show an object as a small table with a bar, in which every value is escaped."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xorack.core.notebook import MAX_SHOWN, table
from xorack.core.peeling import peel
from xorack.core.stamp import traced, xor
from xorack.spark import Report, Tracking
from xorack.spark.storage import Stored

TEXTS = st.text(st.sampled_from("<>&\"'/ a=%{}0"), min_size=1)


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.titles = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.titles += [value for name, value in attributes if name == "title"]

    def handle_data(self, data):
        self.texts.append(data)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_every_value_is_escaped(title, name, value, word):
    page = Page(table(title, {name: value, name + "s": [value]}, [("done", word, 3)]))
    assert set(page.tags) == {"div", "strong", "span", "table", "tr", "th", "td"}
    assert page.titles == [f"3 {word}"]
    assert {title, name, name + "s", value} <= {*page.texts}


def test_a_bar_has_the_shares_of_its_parts():
    parts = [("done", "found", 3), ("missing", "missing", 1), ("surplus", "too many", 0)]
    page = table("t", {}, parts)
    assert ("width:75.00%" in page, "width:25.00%" in page) == (True, True)
    assert Page(page).titles == ["3 found", "1 missing"]
    assert Page(table("t", {}, [("done", "found", 0)])).titles == []


def test_long_lists_end_and_empty_values_are_left_out():
    page = Page(table("t", {"a": [*range(MAX_SHOWN + 7)], "b": None, "c": "", "d": (), "n": 12345}))
    assert page.texts[-3:] == ["and 7 more", "n", "12,345"]
    assert not {"b", "c", "d"} & {*page.texts}


REPORT = Report("written", 2, 1500, 0, 1, 2, 700, (Stored("db.<b>", 3, 900, version=7),), 4)
TRACKING = Tracking(None, "http://q/1", "2026-01-31", "s3://b/<records>", mask=["email"])
MANY = peel(xor(bytes(40_968), *(traced(unit, 1_024) for unit in range(1, 900))))


@pytest.mark.parametrize(
    ("shown", "text", "cells"),
    [
        (
            REPORT,
            "<Report: written: 1,500 units, 4 tolerated, 2 chains; db.<b> at 7, 3 fi",
            "db.<b> at",
        ),
        (TRACKING, "<Tracking: run '2026-01-31', records 's3://b/<records>'>", "s3://b/<records>"),
        (MANY, "<Outstanding: 899 units: 0000000000000001, ", "and 879 more"),
    ],
)
def test_an_object_is_a_line_as_text_and_a_table_in_a_notebook(shown, text, cells):
    assert repr(shown).startswith(text)
    assert len(repr(shown)) < 200
    assert cells in "".join(Page(shown._repr_html_()).texts)
