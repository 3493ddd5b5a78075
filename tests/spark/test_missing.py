"""The rows that jobs lose: all named, by the frame that was aggregated; without it, none wrong."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import Run
from tests.support.queue_server import QueueServer, requests_in
from xorack import unit_id
from xorack.errors import OutputDiffersError
from xorack.spark.missing import why

ORDERS, SIZE = 60, 6
SEEDS = range(*map(int, os.environ.get("RANDOM_JOBS", "0:10").split(":")))
"""Random jobs: RANDOM_JOBS=0:1000 runs a thousand."""
LINES = [(order, line) for order in range(ORDERS) for line in range(SIZE)]


def lines_of(spark):
    """Return lines of orders; a twentieth of them was sent twice, under other numbers."""
    return (
        spark.range(0, ORDERS * SIZE, 1, 3)
        .withColumn("order", F.expr("int(id div 6)"))
        .withColumn("line", F.expr("int(id % 6)"))
        .withColumn("customer", F.expr("concat('c', order % 20)"))
        .withColumn(
            "city",
            F.expr(
                "element_at(array('Rome', 'Oslo ', 'Oslo', 'Bern', NULL), "
                "1 + (order * 5 + line * 3) % 5)"
            ),
        )
        .withColumn("carrier", F.expr("concat('carrier ', (order * 7 + line) % 11)"))
        .withColumn("tags", F.expr("if(order % 10 = 3, array(), array('a', 'b'))"))
        .withColumn("user", F.expr("concat('u', pmod(hash(id div 2), 30))"))
        .withColumn("amount", F.expr("int(pmod(hash(id), 100))"))
        .drop("id")
    )


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        run.rows.start(run.write(lines_of(spark), "lines"))
        by_customer(run).start(str(run.root / "lines"))
        run.sent()
        yield run


def by_customer(run):
    """Return the same lines in chains of customers."""
    return run.tracking.rows("sales", chain="customer", unit=["order", "line"])


def carriers(run):
    return run.read().select("carrier").distinct().where("carrier <> 'carrier 3'")


MERGED = "if(customer IN ('c3', 'c7'), 'c1', customer)"
JOBS = {
    "a filter": (lambda run, rows: rows.where("amount > 20"), "amount <= 20"),
    "an inner join": (
        lambda run, rows: rows.join(carriers(run), "carrier"),
        "carrier = 'carrier 3'",
    ),
    "explode": (
        lambda run, rows: rows.withColumn("tag", F.explode("tags")).where("tag = 'a'"),
        "size of tags = 0",
    ),
    "fillna and a filter": (
        lambda run, rows: rows.fillna("unknown", ["city"]).where("amount > 20"),
        "amount <= 20",
    ),
    "a key trimmed and a filter": (
        lambda run, rows: rows.withColumn("city", F.trim("city")).where("order % 8 > 0"),
        "one of 8 of 60 values of order",
    ),
    "dropDuplicates": (
        lambda run, rows: rows.coalesce(1).dropDuplicates(["user", "carrier"]),
        "has a row with the same user, carrier that is in the output",
    ),
    "codes mapped and a filter": (
        lambda run, rows: rows.replace(CODES, subset=["city"]).where("line <> 2"),
        "line = 2",
    ),
    "customers merged and a filter": (
        lambda run, rows: rows.withColumn("customer", F.expr(MERGED)).where("amount > 20"),
        "amount <= 20",
    ),
    "a join that multiplies, and a filter": (
        lambda run, rows: rows.join(
            F.broadcast(run.spark.range(3)), F.expr("id = 0 OR carrier = 'carrier 5'")
        ).where("line > 0"),
        "line = 0",
    ),
}
CODES = {"Rome": "Bern", "Oslo ": "Paris"}
KEYS = {"small groups": ["order", "city", "customer"], "large groups": ["city"]}


def keys_of(frame):
    return {(row["order"], row["line"]) for row in frame.select("order", "line").collect()}


FAST = ("fillna and a filter", "small groups", "lines", True)
CASES = [
    (name, size, "sales" if "customers" in name else "lines", has_frame)
    for name in JOBS
    for size in KEYS
    for has_frame in (True, False)
]


@pytest.mark.parametrize(
    ("name", "size", "lines", "has_frame"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case != FAST)) for case in CASES],
)
def test_the_frame_names_every_lost_row_and_none_is_wrong_without(
    run, name, size, lines, has_frame
):
    lines = run.rows if lines == "lines" else by_customer(run)
    change, reason = JOBS[name]
    job = change(run, run.read().transform(lines.with_unit))
    truth = keys_of(run.read()) - keys_of(job)
    units = {unit_id(f"2026-01-31/{lines.name}", *keys): keys for keys in truth}
    sums = (F.sum("amount").alias("sum"), *lines.evidence(job if has_frame else None))
    out = run.write(job.groupBy(*KEYS[size]).agg(*sums), "bills")
    with pytest.raises(OutputDiffersError) as caught:
        lines.finish(out)
    error, found = caught.value, caught.value.found
    named = keys_of(found.rows)
    sent = requests_in(run.sent())
    assert {id for one in sent for id in one.missing or ()} <= units.keys()
    differing = {f"2026-01-31/order/{order}" for order, _ in truth}
    assert not differing & {one.tag for one in sent if one.op == "stamp"}
    assert {*error.missing} <= named
    if has_frame:
        assert (found.missing, found.named, named) == (len(truth), len(truth), truth)
        assert "are those of the output, by XOR, count and sum" in str(error)
        assert reason in error.why
    else:
        assert named in (set(), truth)
        assert found.is_exact == (named == truth)
        assert found.missing <= len(truth)
        assert named or "give evidence the frame" in str(error).splitlines()[-1]
    found.unpersist()


def test_rows_that_are_there_are_compared_though_most_are_missing(run, monkeypatch):
    monkeypatch.setattr(why, "_SAMPLE", 10)
    job = run.read().transform(run.rows.with_unit).where("order = 7")
    out = run.write(job.groupBy("city").agg(*run.rows.evidence(job)), "bills")
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(out)
    run.sent()
    assert caught.value.found.missing == (ORDERS - 1) * SIZE
    assert not caught.value.why.endswith("could not be compared with others")
    caught.value.found.unpersist()


def random_job(draw, run, rows):
    """Return a frame of up to four steps that lose, double or change rows, and keys of groups."""
    steps = [
        lambda rows: rows.where(f"amount > {draw.randrange(60)}"),
        lambda rows: rows.where(f"line <> {draw.randrange(6)}"),
        lambda rows: rows.where(f"pmod(hash(order), {draw.randrange(2, 40)}) > 0"),
        lambda rows: rows.where("city IS NOT NULL"),
        lambda rows: rows.where(f"NOT (order = {draw.randrange(ORDERS)} AND line = 3)"),
        lambda rows: rows.join(carriers(run), "carrier"),
        lambda rows: rows.join(carriers(run).withColumn("c", F.lit(1)), "carrier", "left").drop(
            "c"
        ),
        lambda rows: rows.join(F.broadcast(run.spark.range(2)), F.expr("id = 0 OR line = 5")).drop(
            "id"
        ),
        lambda rows: rows.unionAll(rows.where(f"order % {draw.randrange(2, 30)} = 1")),
        lambda rows: rows.unionAll(rows.where("order = 7")).where("order <> 8"),
        lambda rows: rows.fillna(draw.choice(["unknown", "Rome"]), ["city"]),
        lambda rows: rows.withColumn("city", F.trim(F.upper("city"))),
        lambda rows: rows.replace({"Rome": "Bern"}, subset=["city"]),
        lambda rows: rows.withColumn("customer", F.expr(MERGED)),
        lambda rows: rows.withColumn("customer", F.expr("right(customer, 1)")),
        lambda rows: rows.withColumn("order", F.expr("order div 2")),
        lambda rows: rows.withColumn("order", F.col("order").cast("string")),
        lambda rows: rows.coalesce(1).dropDuplicates(draw.sample(["user", "city", "order"], 2)),
        lambda rows: rows.withColumn("tag", F.explode("tags")).drop("tag"),
        lambda rows: rows.withColumn("line", F.expr("line div 2")),
    ]
    for step in draw.sample(steps, draw.randrange(1, 5)):
        rows = step(rows)
    return rows, draw.sample(["order", "city", "customer", "carrier", "line"], draw.randrange(1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_jobs(run, seed):
    """With the frame, all that is lost or doubled is named, exactly; without it, none is wrong."""
    draw = random.Random(seed)
    lines = draw.choice([run.rows, by_customer(run)])
    job, keys = random_job(draw, run, run.read().transform(lines.with_unit))
    units = {unit_id(f"2026-01-31/{lines.name}", *keys): keys for keys in LINES}
    there = Counter(units[row[0] % 2**64] for row in job.select(f"xorack_{lines.name}").collect())
    lost = {keys for keys in LINES if not there[keys]}
    surplus = there.total() - len(there)
    has_frame = draw.random() < 0.5
    evidence = lines.evidence(job if has_frame else None)
    out = run.write(job.groupBy(*keys).agg(F.sum("amount").alias("sum"), *evidence), "bills")
    if not lost and not surplus:
        assert lines.finish(out).units == len(LINES)
        return
    with pytest.raises(OutputDiffersError) as caught:
        lines.finish(out)
    found = caught.value.found
    ids = {id for one in requests_in(run.sent()) for id in one.missing or ()}
    assert {units[id] for id in ids} <= lost
    assert keys_of(found.rows) in ([lost] if has_frame or found.is_exact else [set()])
    if has_frame or found.is_exact:
        assert (found.missing, found.surplus) == (len(lost), surplus)
    else:
        assert (found.missing <= len(lost), found.surplus <= surplus) == (True, True)
    found.unpersist()
