"""Audits: a table against what was started, chain by chain."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import LINES, SIZES, UNITS, Run, lines_of, tag
from tests.support.queue_server import QueueServer, requests_in
from xorack.errors import ArgumentError, ColumnsError, OutputDiffersError, StateError

pytestmark = pytest.mark.spark

ALL, ORDERS = len(LINES), len(SIZES)


@pytest.fixture(scope="module")
def started(spark, tmp_path_factory):
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        run.rows.start(run.write_lines())
        yield run


def rows_of(frame):
    return sorted((row["order"], row["line"]) for row in frame.collect())


def test_tables_that_agree(started):
    lines = started.read()
    tables = [lines.where("line < 5"), lines.where("line >= 5").transform(started.rows.with_unit)]
    for table in (tables, started.write(started.bill(lines), "billed")):
        audit = started.rows.audit(table)
        assert audit.agrees
        assert (audit.started, audit.found, audit.chains) == (ALL, ALL, {"agree": ORDERS})


LOST = "order = 1 OR (order, line) IN ((3, 2), (5, 7), (5, 8))"


def damaged(started):
    """Lose order 1, a line of order 3 and two of 5; double one of 4; make one of 6 another."""
    rows = started.read().where(f"NOT ({LOST})")
    double = rows.where("order = 4 AND line = 9")
    other = rows.withColumn("line", F.expr("if(order = 6 AND line = 1, 121, line)"))
    unknown = rows.where("order = 2").withColumn("order", F.lit(7))
    return other.union(double).union(unknown)


CHAINS = {"agree": 1, "missing": 1, "short": 2, "surplus": 1, "other": 1, "unknown": 1}
VERDICTS = {
    (tag(1), "missing", 1, 0),
    (tag(3), "short", 5, 4),
    (tag(4), "surplus", 9, 10),
    (tag(5), "short", 17, 15),
    (tag(6), "other", 120, 120),
    (tag(7), "unknown", 0, 2),
}


@pytest.mark.slow
def test_a_table_with_units_names_every_missing_row(started):
    audit = started.rows.audit(damaged(started))
    assert not audit.agrees
    assert audit.chains == CHAINS
    columns = ("tag", "verdict", "started", "found")
    assert {tuple(row) for row in audit.differing.select(*columns).collect()} == VERDICTS
    assert rows_of(audit.missing_rows(started.read())) == [(1, 1), (3, 2), (5, 7), (5, 8), (6, 1)]
    assert str(audit).splitlines() == [
        "153 of 154 units of 'lines' are in the table; chains:",
        "  1 agree",
        "  1 missing: not in the table",
        "  2 short: with fewer units",
        "  1 surplus: with more units",
        "  1 other: as many units, but others",
        "  1 unknown: not started",
    ]


def test_a_table_with_evidence_names_rows_by_what_it_shares_with_them(started):
    """By order and sku the groups are small; by order alone, those of the large order are not."""
    billed = started.bill(damaged(started), "order", "sku")
    audit = started.rows.audit(started.write(billed, "billed"))
    assert audit.chains == CHAINS
    missing = audit.missing_rows(str(started.root / "lines"))
    assert rows_of(missing) == rows_of(missing.rows) == [(1, 1), (3, 2), (5, 7), (5, 8)]
    assert (missing.by, missing.missing, missing.named) == (("order", "sku"), 4, 4)
    assert str(missing) == (
        "4 of 4 missing rows can be named, by order, sku; the output has 3 rows too many; "
        "1 group has as many rows as the source, but others: see .candidates"
    )
    assert {row["order"] for row in missing.candidates.collect()} == {6}


@pytest.mark.slow
def test_missing_rows_by_columns_that_are_given(started):
    audit = started.rows.audit(started.bill(damaged(started), "order", "sku"))
    by_order = audit.missing_rows(started.read(), by="order")
    assert rows_of(by_order) == [(1, 1), (3, 2), (5, 7), (5, 8)]
    with pytest.raises(ColumnsError, match="column line is not in the frame"):
        audit.missing_rows(started.read(), by=["order", "line"])


@pytest.mark.slow
def test_what_cannot_be_named_has_candidates(started):
    """Of the 120 lines of an order, 24 are lost: more than one XOR tells."""
    lost = "order = 6 AND sku = 'sku 0' OR order = 3 AND line < 4"
    billed = started.bill(started.read().where(f"NOT ({lost})"), "order")
    missing = started.rows.audit(billed).missing_rows(started.read())
    assert (missing.missing, missing.named) == (27, 3)
    assert rows_of(missing) == [(3, 1), (3, 2), (3, 3)]
    assert {(r["order"], r["xorack_lacks"]) for r in missing.candidates.collect()} == {(6, 24)}
    assert missing.candidates.count() == SIZES[5]
    assert str(missing).endswith("; the other 24 are among .candidates")
    # They have a value in common: the XOR of the rows with it proves that these are missing.
    assert {r["sku"] for r in missing.looked.rows if r["order"] == 6} == {"sku 0"}
    assert len(missing.looked.rows) == 27
    gone = started.rows.audit(billed).missing_rows(started.read().where("order < 6"))
    expected = "by order; the source lacks 120 that were started; the output has 96 rows too many"
    assert str(gone).endswith(expected)


@pytest.fixture(scope="module")
def doubtful(spark, tmp_path_factory):
    """Start lines with spaces in some skus, a time, and a line that is there three times."""
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        sku = F.expr("if(order = 6 AND line < 4, concat(sku, ' '), sku)")
        at = F.expr(
            "timestamp'2026-01-31' + make_dt_interval(0, order, int(order = 6 AND line < 9))"
        )
        rows = lines_of(spark).withColumns({"sku": sku, "at": at})
        same = rows.where("order = 5 AND line = 1")
        run.rows.start(run.write(rows.unionAll(same).unionAll(same), "lines"))
        run.sent()
        yield run


DOUBTFUL = {
    "trimmed": ("order = 6 AND line = 60", ["sku"], 0),
    "trimmed, by chain": ("line = 60 AND order = 6 OR order = 3 AND line = 1", ["order", "sku"], 1),
    "trimmed, into a group that lacks more": ("order = 6 AND sku = 'sku 3'", ["order", "sku"], 0),
    "trimmed, into a group that lacks one": ("order = 1", ["line", "sku"], 0),
    "a chain column of another type": ("order = 3 AND line = 1", ["order", "sku"], 1),
    "truncated": ("order = 1", ["at"], 0),
    "lost and doubled": ("order = 4 AND line < 3", ["order"], 0),
    "not lost": ("false", ["line"], 0),
}


BY_DAY = {"trimmed, into a group that lacks one", "a chain column of another type"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in BY_DAY)) for n in DOUBTFUL]
)
def test_what_is_named_is_lost(doubtful, name):
    """A job that changes a column, or doubles rows, has rows in groups that are not their own."""
    lost, by, named = DOUBTFUL[name]
    rows = doubtful.read()
    job = rows.where(f"NOT ({lost})").withColumn("sku", F.trim("sku"))
    if name == "truncated":
        job = job.withColumn("at", F.date_trunc("hour", "at"))
    elif name == "lost and doubled":
        job = job.unionAll(job.where("order = 4 AND line = 9"))
    elif name == "not lost":
        job = job.dropDuplicates(["order", "line"])
    bills = doubtful.bill(job, *by)
    if name == "a chain column of another type":
        bills = bills.withColumn("order", F.col("order").cast("string"))
    billed = doubtful.write(bills, "billed")
    with pytest.raises(OutputDiffersError) as caught:
        doubtful.rows.finish(billed)
    found = caught.value.found
    assert str(found).startswith(f"{named} of {found.missing} missing rows can be named")
    assert rows_of(found) == sorted(caught.value.missing)
    assert (found.named, len(caught.value.missing)) == (named, named)
    gone = {*rows_of(rows.where(lost))}
    assert {*rows_of(found)} <= gone <= {*rows_of(found), *rows_of(found.candidates)}
    ids = {id for request in requests_in(doubtful.sent()) for id in request.missing or ()}
    assert {UNITS[id] for id in ids} <= gone
    assert len(ids) >= named
    if found.surplus:
        assert f"other groups lack: does the job change {', '.join(found.by)}?" in str(found)


@pytest.mark.slow
def test_a_note_names_an_id_once(run):
    """The acker takes no id twice; how many rows are missing is in the count."""
    rows = lines_of(run.spark).where("order = 5")
    rows = rows.union(rows.where("line = 1").withColumn("sku", F.lit("other")))
    run.rows.start(run.write(rows, "lines"))
    run.sent()
    with pytest.raises(OutputDiffersError, match="16 of 18 units"):
        run.rows.finish(run.write(run.bill(rows.where("line > 1"), "order", "sku"), "billed"))
    (note,) = requests_in(run.sent())
    assert ([UNITS[id] for id in note.missing], note.missing_count) == ([(5, 1)], 2)


@pytest.mark.slow
def test_a_sum_with_the_name_of_a_column_makes_no_groups(started):
    rows = started.read().where("line <> 3").transform(started.rows.with_unit).groupBy("sku")
    billed = rows.agg(F.max("line").alias("line"), *started.rows.evidence())
    missing = started.rows.audit(billed).missing_rows(started.read())
    assert missing.by == ("sku",)
    assert rows_of(missing) == [(3, 3), (4, 3), (5, 3), (6, 3)]
    assert missing.explain().sentence == (
        "All 4 missing rows have line = 3 (2.6 % of all rows, all of which are missing)"
    )
    assert missing.reasons().first()["what"] == "line = 3"


@pytest.mark.slow
def test_a_table_without_chains(started):
    audit = started.rows.audit(started.write(started.bill(damaged(started)), "billed"))
    assert not audit.agrees
    assert (audit.found, audit.chains, audit.differing) == (153, {"undecided": ORDERS}, None)
    assert audit.missing_rows(started.read()).by == ("sku",)
    bills = started.bill(started.read().where("line <> 120"))
    total = bills.agg(*started.rows.evidence(bills))
    assert rows_of(started.rows.audit(total).missing_rows(started.read())) == [(6, 120)]


@pytest.mark.slow
def test_a_start_without_rows(run):
    run.rows.start(run.write_lines([]))
    bills = run.bill(lines_of(run.spark))
    tables = {0: bills.limit(0), ALL: bills}
    for found, table in tables.items():
        audit = run.rows.audit(run.write(table, "billed"))
        assert (audit.started, audit.found, audit.chains) == (0, found, {})
        assert audit.agrees == (found == 0)
        assert str(audit) == f"{found} of 0 units of 'lines' are in the table"


def test_errors(started):
    for table, problem in (([], "an empty list"), ("no_such_table", "'no_such_table' cannot be")):
        with pytest.raises(ArgumentError, match=f"^table: {problem}"):
            started.rows.audit(table)
    with pytest.raises(StateError, match="has not started rows named 'lines'"):
        started.again(run_id="other").rows.audit(started.read())
    with pytest.raises(ColumnsError, match="neither the evidence of 'lines'"):
        started.rows.audit(started.read().select("order", "sku"))


@pytest.mark.slow
def test_an_audit_on_spark_connect(connect, queue, tmp_path):
    run = Run(connect, queue, tmp_path)
    run.rows.start(run.write_lines())
    audit = run.rows.audit(run.read().where(f"NOT ({LOST})"))
    assert audit.chains == {"agree": 3, "missing": 1, "short": 2}
    assert rows_of(audit.missing_rows(run.read())) == [(1, 1), (3, 2), (5, 7), (5, 8)]
