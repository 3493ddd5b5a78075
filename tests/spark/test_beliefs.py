"""What `finish` believes: each job that wrote nothing, or others, ends in an error or in `read`."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import functions as F

from tests.spark.conftest import CONNECT, EACH_SESSION
from tests.spark.orders import LINES, SIZES, Run, lines_of, requests_in
from tests.support.queue_server import QueueServer
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
@pytest.mark.each_version
def test_what_was_started_is_no_output(run, name):
    with pytest.raises(
        ArgumentError,
        match=r"^written: the frame reads the rows that were started, \S+/lines: pass this job",
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
                proofs.append(str(error)[:51])

    finish(run.read())
    assert proofs == ["written: the frame reads the rows that were started", "written", "written"]
    finish(cached(run.read()))
    finish(cached(run.read("marked")))
    assert proofs[3:] == ["read", "written", "written", "read", "read", "read"]
    run.spark.catalog.clearCache()


@pytest.mark.each_version
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
@pytest.mark.each_version
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
    with pytest.raises(ArgumentError, match=r"that were started, .*/layer=bronze: pass this job"):
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


CHANGED = {"all": "concat('s', order)", "some": "if(line = 9, 7, order)", "none": "order"}


@pytest.mark.parametrize("name", slow_but_for(CHANGED))
def test_a_chain_column_that_a_right_job_changes(run, name):
    """Units that are in one chain alone are there, whatever the output says of their chains."""
    lines = run.again(run_id=f"changed {name}").tracking.rows("lines", chain="order", unit="id")
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
    with pytest.raises(ColumnsError, match="and lacks xorack_lines_sum: add all columns"):
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
