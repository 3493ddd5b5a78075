"""Masked columns: no note, error, reason, detail or path of a job shows their values."""

import json
import traceback

import pytest
from pyspark.sql import functions as F

from tests.spark.acker import Acker
from tests.spark.orders import Run
from tests.support.queue_server import QueueServer
from xorack.core.masking import masked
from xorack.errors import ArgumentError, OutputDiffersError

SECRET = "ahab@pequod.example"
MASK = ["Email", "customer"]


@pytest.fixture
def run(spark, tmp_path):
    with QueueServer() as queue:
        yield Run(spark, queue, tmp_path, {"mask": MASK})


def lines_of(spark):
    """Return ten lines of each of four orders; a quarter of them has one customer's address."""
    crew = "concat('crew', (order + line) % 4, '@pequod.example')"
    email = F.expr(f"if((order + line) % 4 = 1, '{SECRET}', {crew})")
    lines = spark.range(40).selectExpr("int(id div 10) AS order", "int(id % 10) AS line")
    return lines.withColumn("email", email)


def test_no_output_of_a_job_shows_a_masked_value(run, spark):
    rows = run.tracking.rows("lines", chain="order", unit=["order", "email", "line"])
    path = str(run.root / "lines")
    lines_of(spark).write.partitionBy("email").parquet(path)
    detail = F.to_json(F.struct(F.lit(SECRET).alias("customer"), F.lit(7).alias("n")))
    chains = lines_of(spark).select("order").distinct().withColumn("detail", detail)
    rows.start(path, chains)
    kept = spark.read.parquet(path).where(f"email <> '{SECRET}'")
    units = kept.transform(rows.with_unit)
    bills = run.write(units.groupBy("line").agg(*rows.evidence(units)), "bills")
    with pytest.raises(OutputDiffersError) as caught:
        rows.finish(bills, source=path)
    error, found = caught.value, caught.value.found
    assert {email for _, email, _ in error.missing} == {masked(SECRET)}
    assert masked(SECRET) in error.why
    bodies = run.sent()
    acker = Acker(bodies)
    chains = [*map(str, acker.chains.values())]
    reasons = found.explain().findings
    details = {chain.detail for chain in acker.chains.values()}
    assert {*map(tuple, (json.loads(one).items() for one in details))} == {
        (("customer", masked(SECRET)), ("n", 7))
    }
    for shown in (str(error), error.why, error.missing, str(found), bodies, chains, reasons):
        assert "pequod.example" not in json.dumps(shown, default=str)
    # The rows themselves, which a repair needs, are what they were.
    assert found.rows.where(f"email = '{SECRET}'").count() == 10


@pytest.mark.slow
def test_a_file_that_is_gone_is_named_without_its_masked_value(run, spark):
    rows = run.tracking.rows("lines", chain="order", unit=["order", "line"])
    path = run.root / "lines"
    lines_of(spark).write.partitionBy("email").parquet(str(path))
    rows.start(str(path))
    for gone in path.glob(f"email={SECRET.replace('@', '%40')}/*.parquet"):
        gone.unlink()
    for gone in path.glob(f"email={SECRET}/*.parquet"):
        gone.unlink()
    units = spark.read.parquet(str(path)).transform(rows.with_unit)
    bills = run.write(units.groupBy("line").agg(*rows.evidence(units)), "bills")
    with pytest.raises(
        OutputDiffersError, match=r"files are missing or empty since then: .*email=#"
    ) as caught:
        rows.finish(bills, source=str(path))
    assert "pequod" not in str(caught.value)


def test_no_path_in_a_report_or_an_error_shows_a_masked_value(run, spark):
    rows = run.tracking.rows("lines", chain="order", unit=["order", "line"])
    folder = run.root / f"email={SECRET}"
    lines_of(spark).drop("email").write.parquet(str(folder))
    rows.start(str(folder))
    bills = lines_of(spark).drop("email").transform(rows.with_unit)
    report = rows.finish(run.write(bills, f"out/Email={SECRET}"))
    errors = []
    for call, *given in (
        (rows.start, str(run.root / "gone" / f"email={SECRET}")),
        (rows.finish, f"{folder}/Email=Captain Ahab, {SECRET}/x"),
        (rows.finish, run.write(bills.where("line > 3"), f"less/email={SECRET}")),
        (rows.audit, str(run.root / "gone" / f"email={SECRET}")),
    ):
        with pytest.raises((ArgumentError, OutputDiffersError)) as caught:
            call(*given)
        errors.append("".join(traceback.format_exception(caught.value)[-1:]))
    assert all(masked(SECRET) in text for text in (report.outputs[0].folder, *errors))
    assert "pequod" not in json.dumps([report.outputs, *errors, run.sent()], default=str)


def test_a_column_of_a_chain_cannot_be_masked(run):
    for option, name in (
        ("chain", lambda column: run.tracking.rows("lines", chain=column, unit="line")),
        ("partition", lambda one: run.tracking.windows("log", partition=one, position="offset")),
    ):
        with pytest.raises(ArgumentError, match=f"{option}: 'EMAIL', expected columns that are"):
            name(["EMAIL"])
