"""Audits: a table against what was started, chain by chain."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.spark.conftest import EACH_SESSION
from tests.spark.orders import LINES, SIZES, UNITS, Run, lines_of, tag
from tests.support.queue_server import QueueServer, requests_in
from xorack.errors import ArgumentError, ColumnsError, OutputDiffersError, StateError

ALL, ORDERS = len(LINES), len(SIZES)


@pytest.fixture(scope="module")
def started(spark, tmp_path_factory):
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        run.rows.start(run.write_lines())
        yield run


def rows_of(frame):
    return sorted((row["order"], row["line"]) for row in frame.collect())


@pytest.mark.slow
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
    missing = audit.missing_rows(started.read())
    assert rows_of(missing.rows) == [(1, 1), (3, 2), (5, 7), (5, 8), (6, 1)]
    text = "at most 150 of 154 units of 'lines' are in the table, and at least 3 too many; "
    text += "chains: 1 agree, 1 missing, 1 other, "
    assert str(audit) == f"{text}2 short, 1 surplus, 1 unknown"
    gone = audit.missing_rows(started.read().where("order < 6"))
    assert gone.proof.endswith("it has 34 units, and 154 were started")


@pytest.mark.slow
@EACH_SESSION
def test_the_frame_that_was_aggregated_names_them_in_another_process(session, queue, tmp_path):
    run = Run(session, queue, tmp_path)
    run.rows.start(run.write_lines())
    rows = damaged(run).transform(run.rows.with_unit)
    billed = rows.groupBy("sku").agg(F.sum("amount"), *run.rows.evidence())
    audit = run.rows.audit(run.write(billed, "billed"))
    missing = audit.missing_rows(str(run.root / "lines"), rows=rows)
    lost = [(1, 1), (3, 2), (5, 7), (5, 8), (6, 1)]
    assert rows_of(missing.rows) == lost
    numbers = (missing.missing, missing.named, missing.surplus, missing.is_exact, missing.by)
    assert numbers == (5, 5, 4, True, ())
    expected = "5 of 5 missing rows can be named; the output has 4 rows too many"
    assert str(missing) == expected
    assert "are those of the output, by XOR, count and sum" in missing.proof


@pytest.mark.slow
def test_without_the_frame_no_row_has_a_name(started):
    """Some groups have rows too many, or others."""
    rows = damaged(started).transform(started.rows.with_unit)
    billed = rows.groupBy("sku").agg(F.sum("amount"), *started.rows.evidence())
    audit = started.rows.audit(started.write(billed, "billed"))
    none = audit.missing_rows(str(started.root / "lines"))
    assert (rows_of(none.rows), none.is_exact, none.missing) == ([], False, 1)
    expected = "0 of at least 1 missing rows can be named, by sku; the others are among .candidates"
    assert str(none) == expected
    assert none.explain().sentence == ""
    assert {(1, 1), (3, 2), (5, 7), (5, 8), (6, 1)} <= {*rows_of(none.candidates)}


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


def test_errors(started):
    for table, problem in (([], "an empty list"), ("no_such_table", "'no_such_table' cannot be")):
        with pytest.raises(ArgumentError, match=f"^table: {problem}"):
            started.rows.audit(table)
    with pytest.raises(StateError, match="has not started rows named 'lines'"):
        started.again(run_id="other").rows.audit(started.read())
    with pytest.raises(ColumnsError, match="neither the evidence of 'lines'"):
        started.rows.audit(started.read().select("order", "sku"))
