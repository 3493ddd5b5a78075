"""A job that loses rows, or writes others, acks nothing: its output is compared with the start."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import functions as F

from tests.spark.acker import Acker
from tests.spark.helpers import delete_rows
from tests.spark.orders import LINES, SIZES, Run, as_set, part_files, tag
from tests.support.queue_server import QueueServer
from xorack.errors import OutputDiffersError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ALL = len(LINES)


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    """Start the lines, and bill them by order and sku."""
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        path = run.write_lines()
        report = run.rows.start(path)
        assert (report.chains, report.units, report.missing) == (len(SIZES), ALL, 0)
        run.started = run.sent()
        run.write(run.bill(run.read(), "order", "sku").repartition(3, "order"), "by_order")
        yield run


def stamped(bodies):
    """Return the tags and ids of the requests that are stamps."""
    return {key for key, request in as_set(bodies).items() if request.op == "stamp"}


def test_a_file_lost_that_spark_has_in_its_cache(run):
    """The evidence is what lies on disk."""
    path = run.write(run.bill(run.read()).repartition(3, "sku"), "by_sku")
    cached = run.spark.read.parquet(str(path)).cache()
    assert cached.count() == 5
    part_files(path)[0].unlink()
    with pytest.raises(OutputDiffersError):
        run.rows.finish(path)
    cached.unpersist()
    assert stamped(run.sent()) == set()


def test_chains_that_differ_are_named(run, tmp_path):
    """With the chain's column in the output, complete orders finish, and the others are named."""
    path = shutil.copytree(run.root / "by_order", tmp_path / "by_order")
    delete_rows(path, lambda row: row["order"] == 2 or (row["order"], row["sku"]) == (6, "sku 0"))
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(str(path))
    assert caught.value.chains == (f"{tag(2)} (0 of 2)", f"{tag(6)} (96 of 120)")
    error = caught.value
    assert (error.written, error.started, len(error.missing)) == (ALL - 26, ALL, 26)
    assert {order for order, _ in error.missing} == {2, 6}
    first, why, counts, proof, named, frame = str(error).splitlines()
    chains = f"{tag(2)} (0 of 2), {tag(6)} (96 of 120)"
    assert first == (
        "128 of 154 units of 'lines' are in the output, and 2 of 6 chains differ: "
        f"the chains that differ stay open; chains: {chains}"
    )
    assert why == error.why
    assert counts == "26 of 26 missing rows can be named, by order, sku"
    assert proof.endswith("the rows that are named explain the sums of every group")
    assert named.startswith("missing, by (order, line): (")
    lines = str(run.root / "lines")
    assert frame == f"as a frame: lines.audit({str(path)!r}).missing_rows({lines!r})"
    bodies = run.sent()
    assert stamped(bodies) == {(tag(order), "lines/finish") for order in (1, 3, 4, 5)}
    acker = Acker(run.started)
    acker.apply(bodies)
    assert acker.statuses() == {"acked": 4, "open": 2}
    # Billed again, the rest follows: the same requests, and those of the two orders.
    assert run.rows.finish(str(run.root / "by_order")).units == ALL
    again = run.sent()
    assert stamped(again) >= stamped(bodies)
    acker.apply(again)
    assert acker.statuses() == {"acked": 6}


def test_input_rows_that_nobody_started(run, tmp_path):
    """A part file of the lines lies there twice, or lines were added: that is no missing unit."""
    twice = run.read().unionAll(run.read().where("order = 3"))
    twice = twice.unionAll(run.spark.createDataFrame([(77, 1, "s", 1)], run.read().schema))
    by_order = run.write(run.bill(twice, "order"), str(tmp_path / "by_order"))
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(by_order, rows=twice)
    assert caught.value.chains == (f"{tag(3)} (10 of 5)", f"{tag(77)} (1 of 0)")
    assert str(caught.value).splitlines()[1] == "the input has 6 rows more than at the start"
    assert stamped(run.sent()) == {(tag(order), "lines/finish") for order in (1, 2, 4, 5, 6)}


@pytest.mark.parametrize("column", ["nullif(order, 5)", "double(order)"])
def test_a_chain_column_that_tells_nothing(run, tmp_path, column):
    """It is null, or of another type: the output is judged at once."""
    bills = run.bill(run.read().where("line <> 120"), "order", "sku")
    path = run.write(bills.withColumn("order", F.expr(column)), str(tmp_path / "odd"))
    with pytest.raises(OutputDiffersError, match="153 of 154 units") as caught:
        run.rows.finish(path)
    assert (caught.value.chains, caught.value.found.missing) == ((), 1)
    assert caught.value.missing == [(6, 120)]
    (note,) = as_set(run.sent()).values()
    assert (note.op, note.tag, note.missing_count) == ("note", tag(6), 1)
    assert run.rows.audit(path).chains == {"undecided": len(SIZES)}
