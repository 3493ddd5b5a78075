"""A job that loses rows, or writes others, acks nothing: its output is compared with the start."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from tests.spark.acker import Acker
from tests.spark.orders import LINES, SIZES, UNITS, Run, as_set, part_files, tag
from tests.support.queue_server import QueueServer
from xorack.errors import ArgumentError, OutputDiffersError

pytestmark = pytest.mark.spark

ALL = len(LINES)


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    """Start the lines, and bill them by sku, and by order and sku."""
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        path = run.write_lines()
        report = run.rows.start(path)
        assert (report.chains, report.units, report.missing) == (len(SIZES), ALL, 0)
        run.started = run.sent()
        run.write(run.bill(run.read()).repartition(3, "sku"), "by_sku")
        run.write(run.bill(run.read(), "order", "sku").repartition(3, "order"), "by_order")
        yield run


@pytest.fixture
def copied(run, tmp_path):
    """Return a function that copies an output, for a test to break."""

    def copy(name):
        return shutil.copytree(run.root / name, tmp_path / name)

    return copy


@pytest.fixture(autouse=True)
def _nothing_is_acked(run):
    yield
    acker = Acker(run.started)
    acker.apply(run.sent())
    assert acker.statuses() == {"open": len(SIZES)}


def rewrite(part, change):
    """Change the rows of a part file, as somebody would with another tool."""
    table = change(pq.read_table(part))
    part.with_name(f".{part.name}.crc").unlink()
    pq.write_table(table, part)


def stamped(bodies):
    """Return the tags and ids of the requests that are stamps."""
    return {key for key, request in as_set(bodies).items() if request.op == "stamp"}


JOBS = {
    "dropped after the aggregation": (lambda run: run.bill(run.read()).where("sku > 'sku 0'"), 123),
    "nothing written": (lambda run: run.bill(run.read()).limit(0), 0),
    "counted twice by a join": (
        lambda run: run.bill(run.read().join(run.spark.range(2), how="cross")),
        2 * ALL,
    ),
    "half a chain doubled, half lost": (
        lambda run: run.bill(
            run.read()
            .where("order < 6 OR line <= 60")
            .withColumn("twice", F.explode(F.expr("sequence(1, if(order < 6, 1, 2))")))
        ),
        ALL,
    ),
    "a wrong unit column": (
        lambda run: run.bill(run.read().withColumn("line", F.col("line") + 1)),
        ALL,
    ),
    "rows of another name": (
        lambda run: run.bill(
            run.read(), rows=run.tracking.rows("x", chain="order", unit=["order", "line"])
        ).withColumnsRenamed(
            {
                "xorack_x_xor": "xorack_lines_xor",
                "xorack_x_count": "xorack_lines_count",
                "xorack_x_sum": "xorack_lines_sum",
            }
        ),
        ALL,
    ),
}


FAST = {"nothing"}


def slow_but_for(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in names]


@pytest.mark.parametrize("name", slow_but_for(JOBS))
def test_a_job_that_loses_rows(run, name):
    broken, written = JOBS[name]
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(broken(run))
    error = caught.value
    assert (error.written, error.started, error.chains) == (written, ALL, ())
    expected = (
        "the output has 154 units of 'lines', but not those"
        if written == ALL
        else f"{written} of {ALL} units of 'lines' are in the output: the chains"
    )
    assert str(error).startswith(expected)
    assert stamped(run.sent()) == set()


FILES = {
    "a part file twice": lambda parts: shutil.copy(parts[0], parts[0].with_name("copy.parquet")),
}


@pytest.mark.parametrize("name", slow_but_for(FILES))
def test_written_files_that_are_damaged(run, copied, name):
    """What is missing is noted on the chains, by name, and why."""
    path = copied("by_sku")
    FILES[name](part_files(path))
    expected = r"\d+ of 154 units of 'lines' are in the output"
    with pytest.raises(OutputDiffersError, match=expected) as caught:
        run.rows.finish(str(path))
    notes, found = as_set(run.sent()).values(), caught.value.found
    assert {request.op for request in notes} <= {"note"}
    assert bool(notes) == (found.missing > 0)
    if notes:
        named = {(row["order"], row["line"]) for row in found.rows.collect()}
        assert {UNITS[id] for note in notes for id in note.missing} == named
        assert all(note.text.endswith(f"; {caught.value.why}") for note in notes)
        assert sum(note.missing_count for note in notes) == found.missing


@pytest.mark.parametrize("rest", slow_but_for(["nothing", "an empty folder"]))
def test_all_files_lost(run, copied, rest):
    path = copied("by_sku")
    shutil.rmtree(path)
    if rest != "nothing":
        path.mkdir()
    with pytest.raises(ArgumentError, match=rf"^written: '{path}' cannot be read: .*$"):
        run.rows.finish(str(path))
    assert stamped(run.sent()) == set()


@pytest.mark.slow
def test_a_file_lost_that_spark_has_in_its_cache(run, copied):
    """The evidence is what lies on disk."""
    path = copied("by_sku")
    cached = run.spark.read.parquet(str(path)).cache()
    assert cached.count() == 5
    part_files(path)[0].unlink()
    with pytest.raises(OutputDiffersError):
        run.rows.finish(str(path))
    cached.unpersist()


@pytest.mark.slow
def test_chains_that_differ_are_named(run, copied):
    """With the chain's column in the output, complete orders finish, and the others are named."""
    path = copied("by_order")
    for part in part_files(path):
        rewrite(
            part,
            lambda table: table.filter(
                [
                    not (o == 6 and s == "sku 0") and o != 2
                    for o, s in zip(
                        *(table[name].to_pylist() for name in ("order", "sku")), strict=True
                    )
                ]
            ),
        )
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


@pytest.mark.slow
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


@pytest.mark.parametrize("column", slow_but_for(["nullif(order, 5)", "double(order)"]))
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


def test_nobody_can_say_what_was_read(run):
    """Without ``rows``, and with a frame given to start, whether the input lacked rows is open."""
    frame_run = run.again(run_id="frames")
    frame_run.rows.start(run.read())
    frame_run.sent()
    by_sku = frame_run.bill(run.read().where("line > 1"))
    with pytest.raises(OutputDiffersError, match=r"148 of 154 .* no rows= says what this job read"):
        frame_run.rows.finish(by_sku)
    assert stamped(run.sent()) == set()
