"""Audits: a table against what was started, chain by chain."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.spark.conftest import EACH_SESSION
from tests.spark.orders import Run, tag
from xorack.errors import ArgumentError, ColumnsError, StateError


def rows_of(frame):
    return sorted((row["order"], row["line"]) for row in frame.collect())


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
    assert (repr(audit), repr(missing)) == (f"<Audit: {audit}>", f"<MissingRows: {missing}>")
    assert 'title="3 too many"' in audit._repr_html_()
    assert 'title="5 missing, with names"' in missing._repr_html_()
    assert "Missing rows of lines" in missing._repr_html_()
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


def test_as_many_units_may_be_other_units(started):
    other = started.read().withColumn("line", F.expr("if(order = 6 AND line = 1, 121, line)"))
    units = other.transform(started.rows.with_unit).select(started.rows.unit_name)
    for table, chains in ((other, "5 agree, 1 other"), (units, "6 undecided")):
        text = f"at most 154 of 154 units of 'lines' are in the table; chains: {chains}"
        assert str(started.rows.audit(table)) == text


def test_a_job_may_change_the_chain_columns(started):
    """All units are there, as finish says, too. Rows of a chain that was not started may be any."""
    job = started.read().transform(started.rows.with_unit)
    moved = job.withColumn("order", F.expr("if(order = 5, 99, order)"))
    for change, text in (
        ("true", "154 of 154 units of 'lines' are in the table; chains: 6 agree"),
        ("line <> 7", "at most 151 of 154 units of 'lines' are in the table; chains: "),
    ):
        sums = moved.where(change).groupBy("order").agg(*started.rows.evidence())
        audit = started.rows.audit(sums)
        assert str(audit).startswith(text)
        assert audit.agrees == (change == "true")
        assert (audit.differing.count() == 0) == audit.agrees


def test_errors(started):
    for table, problem in (([], "an empty list"), ("no_such_table", "'no_such_table' cannot be")):
        with pytest.raises(ArgumentError, match=f"^table: {problem}"):
            started.rows.audit(table)
    with pytest.raises(StateError, match="has not started rows named 'lines'"):
        started.again(run_id="other").rows.audit(started.read())
    with pytest.raises(ColumnsError, match="neither the evidence of 'lines'"):
        started.rows.audit(started.read().select("order", "sku"))
