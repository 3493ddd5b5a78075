"""What xorack says of common bugs: the table in docs/spark.md, and that it is true."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F

from tests.spark.helpers import ROOT
from tests.spark.orders import Run, part_files
from tests.support.queue_server import QueueServer
from xorack.errors import OutputDiffersError

ALL = 600
TABLE = {
    cells[0]: cells[1:]
    for line in (ROOT / "docs" / "spark.md").read_text(encoding="utf-8").splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split(" | ")]) == 5
}
"""The rows of tables of five columns, by the first."""


def lines_of(spark):
    """Return 600 lines of 60 orders, 30 a sku."""
    return (
        spark.range(0, ALL, 1, 3)
        .withColumn("order", F.expr("int(id div 10)"))
        .withColumn("line", F.expr("int(id % 10)"))
        .withColumn("sku", F.expr("concat('sku ', (order * 3 + line) % 20)"))
        .withColumn(
            "country", F.expr("element_at(array('DE', 'FR', 'IT', NULL), 1 + (order + line) % 4)")
        )
        .withColumn("day", F.expr("date_add(date'2026-01-01', order % 3)"))
        .withColumn("at", F.expr("timestamp'2026-01-31' + make_dt_interval(0, 0, 0, id * 143)"))
        .withColumn("tags", F.expr("if(order % 6 = 0, array(), array('new'))"))
        .withColumn("amount", F.expr("int(id % 97)"))
        .drop("id")
    )


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        run.rows.start(run.write(lines_of(spark), "lines"))
        run.sent()
        yield run


def countries(run, *names):
    return run.spark.createDataFrame([(name,) for name in names], "country string")


def lost_part(run):
    """Lose a part file of the output."""
    path = run.write(run.bill(run.read()), "lost_part")
    part_files(path)[0].unlink()
    return path


def partly_overwritten(run):
    """Overwrite all partitions but one, which has the rows of the day before."""
    yesterday = run.again(run_id="2026-01-30")
    old = yesterday.bill(run.read()).where("sku = 'sku 3'")
    return [run.write(run.bill(run.read()).where("sku <> 'sku 3'"), "new"), run.write(old, "old")]


def other_executor(run):
    """Lose what one task of the first job wrote."""
    lost = part_files(run.root / "lines")[0].name
    return run.read().where(~F.input_file_name().endswith(lost))


def first_of_each(run):
    ordered = run.read().coalesce(1).sortWithinPartitions("line")
    return ordered.dropDuplicates(["order", "country"])


BUGS = {
    "a filter": lambda run: run.read().where("line <> 7"),
    "an inner join": lambda run: run.read().join(
        run.read().select("sku").distinct().where("sku <> 'sku 3'"), "sku"
    ),
    "`dropDuplicates`": first_of_each,
    "a join that doubles": lambda run: run.read().join(
        F.broadcast(run.spark.range(2)), F.expr("id = 0 OR country = 'FR'")
    ),
    "`explode`": lambda run: run.read().withColumn("tag", F.explode("tags")),
    "a null key": lambda run: run.read().join(countries(run, "DE", "FR", "IT"), "country"),
    "a wrong partition": lambda run: run.read().where("day <> date'2026-01-02'"),
    "a time zone": lambda run: run.read().where(
        "to_date(from_utc_timestamp(at, 'Europe/Helsinki')) = date'2026-01-31'"
    ),
    "one executor's rows": other_executor,
}
OUTPUTS = {
    "a lost part file": lost_part,
    "a stale output": lambda run: run.write(
        run.again(run_id="2026-01-30").bill(run.read()), "stale"
    ),
    "a partial overwrite": partly_overwritten,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", {**BUGS, **OUTPUTS})
def test_what_is_said_of_a_bug(run, name):
    output = OUTPUTS[name](run) if name in OUTPUTS else run.bill(BUGS[name](run))
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(output)
    error = caught.value
    found = error.found
    why = re.sub(r"'part-\S+'", "'part-…'", error.why)
    row = [f"{ALL - error.written:,}", str(found.missing), str(found.named), why]
    assert TABLE.get(name) == row
    assert found.rows.count() == found.named
    assert len(error.missing) == min(found.named, 100)


def test_the_table_has_these_bugs():
    assert {*BUGS, *OUTPUTS} <= TABLE.keys()
