"""Tables at a version, over a catalogue in memory that answers the statements of Iceberg and Delta.

tests/spark/test_publish.py runs Iceberg itself. Delta's classes are not there: this shows that its
documented statements are the ones that are sent.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException, ParseException

from xorack.errors import ArgumentError, StateError
from xorack.spark import tables
from xorack.spark.tables import Publication, Snapshot

PARENTS = {1: None, 2: 1, 3: 2, 4: 2, 5: 99}
"""Snapshots 3 and 4 both follow 2; of 5, the one before has expired."""
BILLS = "cat.db.bills"


class Rows(list):
    """Rows as a frame: what is selected or left out makes no difference here."""

    def collect(self):
        return [*self]

    def select(self, *_):
        return self


class Catalogue:
    """A table `cat.db.bills` with branches, and one of Delta, `sales.bills`."""

    def __init__(self, **references):
        self.references, self.statements, self.failures = references, [], []
        self.conf = SimpleNamespace(get=lambda _, default: default)
        self.catalog = SimpleNamespace(refreshTable=lambda _: None)

    def table(self, name):
        if name == "plain.bills":
            return SimpleNamespace(schema=None)
        return Rows({f"{BILLS}.refs": self.references, f"{BILLS}.snapshots": PARENTS}[name].items())

    def sql(self, text):
        self.statements.append(text)
        if self.failures and text.startswith("CALL"):
            raise self.failures.pop()
        for pattern, answer in (
            (r"DESCRIBE TABLE EXTENDED (\S+)", self.describe),
            (r"DESCRIBE HISTORY sales.bills LIMIT 1", lambda: Rows([{"version": 7}])),
            (rf"ALTER TABLE {BILLS} CREATE OR REPLACE BRANCH (\w+) AS OF VERSION (\d+)", self.make),
            (rf"ALTER TABLE {BILLS} DROP BRANCH IF EXISTS (\w+)", self.references.pop),
            (rf"CALL cat.system.fast_forward\(table => '{BILLS}', .* to => '(\w+)'\)", self.move),
        ):
            if match := re.fullmatch(pattern, text):
                return answer(*match.groups())
        raise AssertionError(text)

    def describe(self, name):
        provider = {"cat": "iceberg", "sales": "delta", "plain": "parquet"}.get(name.split(".")[0])
        if provider is None:
            raise AnalysisException("no such table")
        identity = BILLS if name.startswith(BILLS) else f"spark_catalog.{name}"
        rows = {"": "", "# Detailed Table Information": "", "Name": identity, "Provider": provider}
        columns = [("Provider", "string"), *rows.items()]
        return Rows({"col_name": name, "data_type": value} for name, value in columns)

    def make(self, name, version):
        self.references[name] = int(version)

    def move(self, name):
        head = self.references[name]
        assert (
            tables.publication(head, self.references.get("main"), PARENTS)
            is not Publication.DIVERGED
        )
        self.references["main"] = head


@pytest.mark.parametrize(
    ("version", "main", "expected"),
    [
        (3, 3, Publication.PUBLISHED),
        (2, 3, Publication.PUBLISHED),
        (3, 2, Publication.POSSIBLE),
        (3, 1, Publication.POSSIBLE),
        (3, None, Publication.POSSIBLE),
        (3, 4, Publication.DIVERGED),
        (5, 1, Publication.DIVERGED),
        (5, 99, Publication.POSSIBLE),
    ],
)
def test_how_a_snapshot_stands_to_main(version, main, expected):
    assert tables.publication(version, main, PARENTS) is expected


@pytest.mark.parametrize(
    ("name", "identity", "expected"),
    [
        ("cat.db.bills", "cat.db.bills", ("cat.db.bills", "", "")),
        ("cat.db.bills.branch_audit", "cat.db.bills", ("cat.db.bills", "branch", "audit")),
        ("cat.db.`my.bills`.`tag_v 1`", "cat.db.my.bills", ("cat.db.`my.bills`", "tag", "v 1")),
        ("cat.db.bills.snapshot_id_7", "cat.db.bills", ("cat.db.bills", "snapshot_id", "7")),
        ("cat.db.branch_audit", "cat.db.branch_audit", ("cat.db.branch_audit", "", "")),
        ("branch_audit", "branch_audit", ("branch_audit", "", "")),
    ],
)
def test_the_last_part_of_a_name_may_select_a_branch(name, identity, expected):
    assert tables.split_reference(name, identity) == expected


def test_a_name_is_pinned_to_the_version_of_now():
    spark = Catalogue(main=2, audit=3)
    branch = tables.pinned(spark, f"{BILLS}.branch_audit")
    assert branch == Snapshot(f"{BILLS}.branch_audit", BILLS, BILLS, "iceberg", 3, "audit")
    assert tables.pinned(spark, BILLS).version == 2
    delta = tables.pinned(spark, "sales.bills")
    assert (delta.provider, delta.version, delta.branch) == ("delta", 7, None)
    assert delta.words == "sales.bills at version 7"
    for name in ("plain.bills", "nowhere", f"{BILLS}.branch_other", "s3://b/bills"):
        assert tables.pinned(spark, name) == name


def test_a_change_is_noticed():
    spark = Catalogue(main=2, audit=3)
    branch = tables.pinned(spark, f"{BILLS}.branch_audit")
    tables.check_unchanged(spark, branch)
    spark.references["audit"] = 4
    with pytest.raises(StateError, match=r"audit at snapshot 3 was read, and now it is at 4"):
        tables.check_unchanged(spark, branch)


def published(spark):
    branch = tables.to_publish(spark, f"{BILLS}.branch_audit", False)
    spark.statements.clear()
    tables.publish(spark, branch, "written")
    return [text.split()[0] for text in spark.statements]


def test_main_moves_to_exactly_what_was_proved():
    spark = Catalogue(main=1, audit=3)
    branch = tables.to_publish(spark, f"{BILLS}.branch_audit", False)
    spark.references["audit"] = 4  # others go on with it
    tables.publish(spark, branch, "written")
    assert spark.references == {"main": 3, "audit": 4}


def test_what_is_published_is_not_published_again():
    left = {"xorack_3": 3, "xorack_2": 2, "xorack_4": 4}  # 4 is another process's
    spark = Catalogue(main=3, audit=3, **left)
    assert published(spark) == ["ALTER", "ALTER"]
    assert spark.references == {"main": 3, "audit": 3, "xorack_4": 4}


def test_a_conflict_is_tried_again():
    spark = Catalogue(main=1, audit=3)
    spark.failures = [RuntimeError("commit failed")]
    assert published(spark) == ["ALTER", "CALL", "ALTER", "CALL", "ALTER"]
    assert spark.references == {"main": 3, "audit": 3}


def test_errors_of_a_publication_say_that_nothing_was_acked():
    spark = Catalogue(main=4, audit=3)
    with pytest.raises(StateError, match=r"^nothing was published or acked: main of .* has moved"):
        published(spark)
    assert spark.references == {"main": 4, "audit": 3}
    spark = Catalogue(main=1, audit=3)
    spark.failures = [RuntimeError("out of order")] * 9
    with pytest.raises(StateError, match=r"could not be fast-forwarded to .*\(out of order\)"):
        published(spark)
    assert spark.references["main"] == 1
    spark.failures = [ParseException("CALL?")]
    with pytest.raises(ArgumentError, match=r"needs Iceberg's SQL extensions"):
        published(spark)


@pytest.mark.parametrize(
    "given", [BILLS, "sales.bills", "plain.bills", "s3://b/bills", [BILLS], None]
)
def test_only_a_branch_is_published(given):
    with pytest.raises(ArgumentError, match=r"^publish: True needs one branch of an Iceberg table"):
        tables.to_publish(Catalogue(main=1), given, False)
