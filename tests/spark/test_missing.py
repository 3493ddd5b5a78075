"""The rows that jobs lose: all named, by the frame that was aggregated; without it, none wrong."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import Run, requests_in
from tests.spark.sentences import Truth, false_claims
from tests.support.queue_server import QueueServer
from xorack import unit_id
from xorack.errors import OutputDiffersError
from xorack.spark.missing import why

ORDERS, SIZE = 60, 6
SEEDS = range(*map(int, os.environ.get("RANDOM_JOBS", "0:10").split(":")))
"""Random jobs: RANDOM_JOBS=0:1000 runs a thousand."""


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
        "has a row with the same carrier, user that is in the output",
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
    for name, size in zip(JOBS, [*KEYS] * len(JOBS), strict=False)
    for has_frame in (True, False)
    if has_frame or name in ("an inner join", "dropDuplicates")
]
CASES += [FAST] * (FAST not in CASES)


@pytest.mark.parametrize(
    ("name", "size", "lines", "has_frame"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case != FAST)) for case in CASES],
)
@pytest.mark.each_version
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
        assert named or "pass the aggregated frame" in str(error).splitlines()[-1]


def test_rows_that_are_there_are_compared_though_most_are_missing(run, monkeypatch):
    monkeypatch.setattr(why, "SAMPLE", 10)
    job = run.read().transform(run.rows.with_unit).where("order = 7")
    out = run.write(job.groupBy("city").agg(*run.rows.evidence(job)), "bills")
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(out)
    run.sent()
    assert caught.value.found.missing == (ORDERS - 1) * SIZE
    assert not caught.value.why.endswith("could not be compared with others")


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


def late(flag, draw):
    """Return a condition that loses other rows once a file is there."""
    before, after = draw.sample(range(40), 2)

    def is_kept(order):
        return order != (after if Path(flag).exists() else before)

    return F.udf(is_kept, "boolean", useArrow=False)


@pytest.fixture(scope="module")
def twice(run):
    """Lines of which some were written twice, with another amount."""
    lines = run.again(run_id="twice").rows
    again = lines_of(run.spark).where("line < 2 AND order % 4 = 1")
    rows = lines_of(run.spark).unionAll(again.withColumn("amount", F.col("amount") + 100))
    with pytest.warns(UserWarning, match="30 units occur more than once"):
        lines.start(run.write(rows, "twice"))
    run.sent()
    return lines


ACKED: dict[str, set[str]] = defaultdict(set)
"""The tags of the chains that earlier jobs have finished, by the names of rows."""


def acked_before(run, lines, draw):
    """Return the tags that earlier jobs have acked; let the record forget half of the time."""
    if draw.random() < 0.5:
        ACKED.clear()
        for place in (run.root / "records").rglob("finished*"):
            shutil.rmtree(place, ignore_errors=True)
    return ACKED[lines.namespace]


KINDS = ("twice", "changed", "computed", "merged", "previews", "parts", "units", "samples")
"""Ways in which jobs and sources may be odd. A random job has up to three of them."""


def written_by(run, lines, job, keys, kinds, *, has_frame):
    """Write what a job sums up, or the rows themselves; return the outputs."""
    if "units" in kinds:
        return [run.write(job.select(*keys, lines.unit_name), "rows")]
    parts = [job]
    if "parts" in kinds:
        parts = [job.where(f"pmod(hash({lines.unit_name}), 2) = {n}") for n in range(2)]
    outputs = []
    for n, part in enumerate(parts):
        evidence = lines.evidence(part if has_frame else None)
        bills = part.groupBy(*keys).agg(F.sum("amount").alias("sum"), *evidence)
        outputs.append(run.write(bills, f"bills{n}"))
    if "merged" in kinds:
        nulls = (f"CAST(NULL AS bigint) AS {name}" for name in lines.evidence_names)
        old = run.spark.read.parquet(outputs[0]).limit(1).selectExpr(*keys, "sum", *nulls)
        outputs.append(run.write(old, "old"))
    return outputs


def check_names(found, truth, kinds, *, has_frame):
    """Check that an error names all lost rows, or none; return how many it names."""
    if found is None:
        return 0
    lost, named = truth.missing, keys_of(found.rows)
    hidden = {unit for unit in lost if truth.started[unit] > 1 and truth.written[unit]}
    is_known = (has_frame and "computed" not in kinds) or "units" in kinds
    is_known &= "changed" not in kinds
    assert named in ([lost.keys() - hidden] if is_known or found.is_exact else [set()])
    if is_known or found.is_exact:
        assert (found.missing, found.surplus) == (lost.total(), truth.surplus.total())
    if "changed" in kinds:
        assert (named, found.is_exact) == (set(), False)
    return len(named)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_jobs(run, twice, seed, tmp_path, monkeypatch, record_property):
    """No wrong name or id, and no false sentence; with the frame, all that is lost is named."""
    draw = random.Random(seed)
    kinds = {*draw.sample(KINDS, draw.randrange(4))}
    lines = twice if "twice" in kinds else draw.choice([run.rows, by_customer(run)])
    source, options = run.read("twice" if "twice" in kinds else "lines"), {}
    if "samples" in kinds:
        monkeypatch.setattr(why, "SAMPLE", draw.randrange(10, 100))
    job, keys = random_job(draw, run, source.transform(lines.with_unit))
    if "computed" in kinds:
        job = job.where(late(tmp_path / "late", draw)(F.col(lines.unit_name) % 40))
    read = [row.asDict() for row in source.collect()]
    places = [(row["order"], row["line"]) for row in read]
    places_by_unit = {unit_id(lines.namespace, *place): place for place in places}
    written = (places_by_unit[row[0] % 2**64] for row in job.select(lines.unit_name).collect())
    truth = Truth(read, Counter(written), ("order", "line"))
    has_frame = draw.random() < 0.6
    out = written_by(run, lines, job, keys, kinds, has_frame=has_frame)
    if "previews" in kinds and has_frame:
        for _ in range(draw.randrange(1, 3)):
            lines.evidence(job.limit(draw.randrange(5)))
    if "changed" in kinds:
        line = F.expr(f"if(order = {draw.randrange(ORDERS)} AND line = 1, 99, line)")
        options["source"] = run.write(source.withColumn("line", line), "changed")
    (tmp_path / "late").touch()
    run.sent()
    acked = acked_before(run, lines, draw)
    if not truth.missing and not truth.surplus:
        assert lines.finish(out, **options).units == len(read)
        acked |= {request.tag for request in requests_in(run.sent())}
        return
    with pytest.raises(OutputDiffersError) as caught:
        lines.finish(out, **options)
    error, sent = caught.value, requests_in(run.sent())
    chains = len({row[lines.chain[0]] for row in read})
    assert false_claims(str(error), truth, sent, chains, acked) == []
    acked |= {request.tag for request in sent if request.op == "stamp"}
    ids = {id for request in sent for id in request.missing or ()}
    assert {places_by_unit[id] for id in ids} <= truth.missing.keys()
    named = check_names(error.found, truth, kinds, has_frame=has_frame)
    record_property("names", named + len(ids))
