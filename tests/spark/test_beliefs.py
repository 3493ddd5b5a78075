"""What `finish` believes: each job that wrote nothing, or others, ends in an error or in `read`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.spark.acker import Acker
from tests.spark.conftest import CONNECT, EACH_SESSION
from tests.spark.helpers import delete_rows
from tests.spark.orders import LINES, SIZES, Run, as_set, lines_of, tag
from tests.support.queue_server import QueueServer, requests_in
from xorack.errors import ArgumentError, ColumnsError, OutputDiffersError, StateError
from xorack.spark import rows as rows_module


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        run.rows.start(run.write_lines())
        run.started = run.sent()
        run.write(run.bill(run.read()), "billed")
        run.write(run.bill(run.read()).limit(0), "nothing")
        yield run


@pytest.fixture(autouse=True)
def _nothing_sent(run):
    run.sent()


def stamped(bodies):
    """Return the tags and ids of the requests that are stamps."""
    return {key for key, request in as_set(bodies).items() if request.op == "stamp"}


def viewed(run, frame):
    frame.createOrReplaceTempView("believed")
    return "believed"


def cached(frame):
    frame.cache().count()
    return frame


FAST = {"the input's path", "cached, and its files are gone", "written again"}


def slow_but_for(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in names]


STARTED = {
    "the input's path": lambda run: str(run.root / "lines"),
    "the input, cached": lambda run: (cached(run.read()), str(run.root / "lines"))[1],
    "the rows that were read": lambda run: run.read(),
    "a view of it": lambda run: viewed(run, run.bill(run.read())),
    "one of several": lambda run: [str(run.root / "nothing"), run.read()],
}


@pytest.mark.parametrize("name", slow_but_for(STARTED))
def test_what_was_started_is_no_output(run, name):
    with pytest.raises(
        ArgumentError,
        match=r"^written: it reads what was started, \S+/lines: give",
    ):
        run.rows.finish(STARTED[name](run))
    assert run.queue.bodies == []
    run.spark.catalog.clearCache()


@EACH_SESSION
@pytest.mark.slow
def test_what_a_batch_read_is_no_output(session, run, queue, tmp_path):
    """Where Spark does not name the files of the batch, evidence or units tell its output."""
    if session is not run.spark:
        run = Run(session, queue, tmp_path)
        run.write(run.bill(run.read(run.write_lines())), "billed")
    proofs = []
    marked = run.write(run.read().transform(run.rows.with_unit), "marked")

    def finish(rows):
        for output in (str(run.root / "lines"), marked, str(run.root / "billed")):
            try:
                proofs.append(run.rows.batch(1).finish(output, source=rows).proof)
            except ArgumentError as error:
                proofs.append(str(error)[:34])

    finish(run.read())
    assert proofs == ["written: it reads what was started", "written", "written"]
    finish(cached(run.read()))
    finish(cached(run.read("marked")))
    assert proofs[3:] == ["read", "written", "written", "read", "read", "read"]
    run.spark.catalog.clearCache()


def test_an_output_of_another_run(run):
    """A daily snapshot has the keys of the day before: today's job died, and wrote nothing."""
    snapshot = run.write(run.read().withColumn("price", F.lit(1)), "snapshot")
    today = run.again(run_id="2026-02-01").rows
    today.start(str(run.root / "lines"))
    run.sent()
    expected = r"2 of . files are older than the start .*keep the column xorack_lines of with_unit"
    for given in (snapshot, [snapshot, run.write(run.read().limit(0), "no")]):
        with pytest.raises(ArgumentError, match=expected):
            today.finish(given)
    assert "stamp" not in {request.op for request in requests_in(run.sent())}
    assert today.finish(run.write(run.read(), "snapshot")).proof == "written"


def gone(run):
    """Cache an output, then delete it."""
    path = shutil.copytree(run.root / "billed", run.root / "gone")
    frame = cached(run.spark.read.parquet(str(path)))
    shutil.rmtree(path)
    return frame


READ = {
    "cached, and its files are gone": gone,
    "a view of what is cached": lambda run: viewed(run, cached(run.bill(run.read()))),
    "rows on the driver": lambda run: run.spark.createDataFrame(run.read("billed").collect()),
    "computed from rows like the input's": lambda run: run.bill(lines_of(run.spark)),
}


@pytest.mark.parametrize("name", slow_but_for(READ))
def test_what_is_not_stored_was_read(run, name):
    report = run.rows.finish(READ[name](run))
    assert (report.proof, report.chains, report.outputs) == ("read", len(SIZES), ())
    run.spark.catalog.clearCache()


@pytest.mark.slow
def test_a_computed_output_whose_plan_is_cut_was_read(run, configure):
    configure("spark.sql.maxPlanStringLength", "50")
    computed = run.bill(run.spark.read.parquet(run.write(run.read(), "to_bill")))
    assert run.rows.finish(computed.where("amount > 0")).proof == "read"


SIBLINGS = {
    "paths": (lambda run, name: run.write(run.read(), name)),
    "frames": (lambda run, name: run.spark.read.parquet(run.write(run.read(), name))),
}


@pytest.mark.slow
@pytest.mark.parametrize("given", SIBLINGS)
def test_an_output_beside_its_input(run, given):
    """Folders of partitions differ, and still the input is no output."""
    rows = run.again(run_id=f"siblings, {given}").rows
    rows.start(SIBLINGS[given](run, "layer=bronze"))
    assert rows.finish(SIBLINGS[given](run, "layer=silver")).proof == "written"
    # The input, written again by others in partitions.
    rewritten = run.read("layer=silver").write.mode("overwrite").partitionBy("sku")
    rewritten.parquet(str(run.root / "layer=bronze"))
    with pytest.raises(ArgumentError, match=r"what was started, .*/layer=bronze: give"):
        rows.finish(str(run.root / "layer=bronze"))


@pytest.mark.slow
@pytest.mark.skipif(not CONNECT, reason="PySpark 3.5 has no data sources in Python")
def test_a_table_without_files_and_marks_was_read(run):
    """Nothing tells when its rows were written, nor whether it is what was started."""
    run.spark.dataSource.register(source_of(run.read().collect()))
    run.spark.sql("CREATE TABLE no_files USING believed")
    try:
        rows = run.again(run_id="no files").rows
        rows.start("no_files")
        for given in ("no_files", "default.no_files", run.spark.table("no_files")):
            assert rows.finish(given).proof == "read"
    finally:
        run.spark.sql("DROP TABLE no_files")


def source_of(found):
    """Return a source of these rows, which is no file."""
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def read(self, partition):
            yield from map(tuple, found)

    class Believed(DataSource):
        @classmethod
        def name(cls):
            return "believed"

        def schema(self):
            return "order int, line int, sku string, amount int"

        def reader(self, schema):
            return Reader()

    return Believed


@pytest.mark.slow
def test_a_unit_column_of_another_run_is_not_believed(run):
    """What was written keeps it: the unit columns tell this run's units."""
    yesterday, today = (run.again(run_id=day).rows for day in ("2026-01-29", "2026-01-30"))
    path = run.write(run.read().transform(yesterday.with_unit), "with_units")
    yesterday.start(path)
    stale = run.write(run.bill(run.read("with_units"), rows=yesterday), "stale")
    today.start(path)
    with pytest.raises(OutputDiffersError, match="is the output of another run or name"):
        today.finish(stale)
    bills = run.bill(run.read("with_units"), rows=today)
    assert today.finish(run.write(bills, "todays")).units == sum(SIZES)


@pytest.mark.slow
def test_views_and_tables_of_what_is_stored(run):
    for output in (viewed(run, run.read("billed")), run.read("billed").where("amount > 0")):
        report = run.rows.finish(output)
        assert (report.proof, len(report.outputs)) == ("written", 1)
    # Rows that a job has copied are an output: they are there.
    assert run.rows.finish(run.write(run.read(), "copied")).proof == "written"
    run.read("billed").write.saveAsTable("believed_table")
    try:
        assert run.rows.finish("believed_table").proof == "written"
    finally:
        run.spark.sql("DROP TABLE believed_table")


@pytest.mark.parametrize("change", slow_but_for(["written again", "deleted"]))
def test_an_output_that_changes_meanwhile(run, monkeypatch, change):
    path = run.write(run.read("billed"), "changing")
    check = rows_module.check_output

    def late(*given):
        if change == "deleted":
            shutil.rmtree(path)
        else:
            run.write(run.read("billed").where("sku > 'sku 0'"), "changing")
        return check(*given)

    monkeypatch.setattr(rows_module, "check_output", late)
    with pytest.raises(StateError, match=r"^the output changed while finish read it: 1 of"):
        run.rows.finish(path)
    assert run.queue.bodies == []


@pytest.mark.slow
@pytest.mark.parametrize("batch_id", [None, 3])
def test_equal_units_of_two_chains(run, batch_id):
    """The output tells equal units of two chains apart, if it has the chain's column."""
    lines = run.tracking.rows("lines", chain="order", unit="line", label=f"equal {batch_id}")
    path, rows = run.write(lines_of(run.spark), "equal"), run.read("lines")
    lines = lines if batch_id is None else lines.batch(batch_id)
    lines.start(path)
    run.sent()
    given = {} if batch_id is None else {"source": run.read("equal")}
    twice = rows.where("NOT (order = 4 AND line = 2)").union(rows.where("order = 5 AND line = 2"))
    swapped = run.write(run.bill(twice, "order", "sku", rows=lines), "swapped")
    with pytest.raises(OutputDiffersError, match="the output has 154 units of 'lines', but not"):
        lines.finish(swapped, **given)
    tags = {tag(n).replace("order/", f"equal {batch_id}/") for n in (1, 2, 3, 6)}
    stamps = {request.tag for request in requests_in(run.sent()) if request.op == "stamp"}
    assert stamps == (tags if batch_id is None else set())
    right = run.write(run.bill(rows, "order", "sku", rows=lines), "right")
    assert lines.finish(right, **given).chains == len(SIZES)
    run.sent()
    # The output has line 1, of other chains: nothing tells whose is missing.
    lost = rows.where("NOT (order = 1 AND line = 1)")
    for by in (["order", "sku"], ["sku"]):
        with pytest.raises(OutputDiffersError, match="153 of 154 units") as caught:
            lines.finish(run.write(run.bill(lost, *by, rows=lines), "lost"), **given)
        assert caught.value.found.rows.count() == 0
        assert [request.tag for request in requests_in(run.sent()) if request.missing] == []


CHANGED = {"all": "concat('s', order)", "some": "if(line = 9, 7, order)", "none": "order"}


@pytest.mark.parametrize("name", slow_but_for(CHANGED))
def test_a_chain_column_that_a_right_job_changes(run, name):
    """Units that are in one chain alone are there, whatever the output says of their chains."""
    lines = run.tracking.rows("lines", chain="order", unit="id", label=f"changed {name}")
    rows = lines_of(run.spark).withColumn("id", F.expr("order * 1000 + line"))
    lines.start(run.write(rows, "to_change"))
    changed = run.read("to_change").withColumn("order", F.expr(CHANGED[name]))
    report = lines.finish(run.write(run.bill(changed, "order", "sku", rows=lines), "changed"))
    assert (report.chains, report.units, report.missing) == (len(SIZES), len(LINES), 0)


@pytest.mark.slow
def test_evidence_that_is_not(run):
    lines, lost = run.rows, run.read("billed").drop("xorack_lines_sum")
    with pytest.raises(ColumnsError, match="no column xorack_lines: add it first"):
        lines.evidence(run.read())
    with pytest.raises(ColumnsError, match="and not xorack_lines_sum: add up all columns"):
        lines.finish(run.write(lost, "lost"))
    inexact = run.read("billed").withColumn("xorack_lines_xor", F.col("xorack_lines_xor") * 1.0)
    with pytest.raises(ColumnsError, match="xorack_lines_xor is double, expected bigint: preci"):
        lines.finish(run.write(inexact, "inexact"))
    run.read("billed").write.csv(str(run.root / "csv"), header=True)
    with pytest.raises(ArgumentError, match=r"cannot be read: .*as a frame: spark\.read\.format"):
        lines.finish(str(run.root / "csv"))
    text = run.read().withColumn("line", F.col("line").cast("string"))
    with pytest.raises(OutputDiffersError, match="line is int in what was started and a string in"):
        lines.finish(run.write(run.bill(text), "text"))


@pytest.mark.slow
def test_an_input_that_is_gone_is_named(run):
    lines = run.again(run_id="gone").rows
    lines.start(run.write_lines(name="removed"))
    billed = run.write(run.bill(run.read("removed").where("line > 1"), rows=lines), "billed_of_it")
    shutil.rmtree(run.root / "removed")
    with pytest.raises(
        OutputDiffersError, match=r"\nsource: \S+/removed' cannot be read: Path doe"
    ):
        lines.finish(billed)


@pytest.mark.slow
def test_chains_that_differ_are_named(run, tmp_path):
    """With the chain's column in the output, complete orders finish, and the others are named."""
    complete = run.write(run.bill(run.read(), "order", "sku"), "by_order")
    path = Path(shutil.copytree(complete, tmp_path / "by_order"))
    delete_rows(path, lambda row: row["order"] == 2 or (row["order"], row["sku"]) == (6, "sku 0"))
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(str(path))
    assert caught.value.chains == (f"{tag(2)} (0 of 2)", f"{tag(6)} (96 of 120)")
    error = caught.value
    assert (error.written, error.started, len(error.missing)) == (len(LINES) - 26, len(LINES), 26)
    assert {order for order, _ in error.missing} == {2, 6}
    first, why, counts, proof, named, frame = str(error).splitlines()
    chains = f"{tag(2)} (0 of 2), {tag(6)} (96 of 120)"
    assert first == (
        "128 of 154 units of 'lines' are in the output: 2 of 6 chains stay open: "
        f"{chains}; 4 are acked"
    )
    assert why == error.why
    assert counts == "26 of 26 missing rows can be named, by order, sku"
    assert proof.endswith("the rows that are named explain the sums of every group")
    assert named.startswith("missing, by (order, line): (")
    lines = str(run.root / "lines")
    assert frame == f"as a frame: lines.audit({str(path)!r}).missing_rows({lines!r}, rows=frame)"
    bodies = run.sent()
    assert stamped(bodies) == {(tag(order), "lines/finish") for order in (1, 3, 4, 5)}
    acker = Acker(run.started)
    acker.apply(bodies)
    assert acker.statuses() == {"acked": 4, "open": 2}
    # Billed again, the rest follows: the same requests, and those of the two orders.
    assert run.rows.finish(complete).units == len(LINES)
    again = run.sent()
    assert stamped(again) >= stamped(bodies)
    acker.apply(again)
    assert acker.statuses() == {"acked": 6}


@pytest.mark.slow
@pytest.mark.parametrize("column", ["nullif(order, 5)", "double(order)"])
def test_a_chain_column_that_tells_nothing(run, tmp_path, column):
    """It is null, or of another type: the output is judged at once."""
    bills = run.bill(run.read().where("line <> 120"), "order", "sku")
    path = run.write(bills.withColumn("order", F.expr(column)), str(tmp_path / "odd"))
    with pytest.raises(OutputDiffersError, match="153 of 154 units") as caught:
        run.rows.finish(path)
    assert (caught.value.chains, caught.value.found.missing) == ((), 1)
    assert caught.value.missing == [(6, 120)]
    notes = {request.tag: request for request in requests_in(run.sent())}
    assert {note.op for note in notes.values()} == {"note"}
    assert {t: note.missing_count for t, note in notes.items() if note.missing} == {tag(6): 1}
    assert notes.keys() == {tag(order) for order in range(1, 7)}
    assert run.rows.audit(path).chains == {"undecided": len(SIZES)}
