"""The sentence of a failing finish, for each way in which a job and its source may change."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import LINES, SIZES, lines_of, requests_in, tag
from tests.spark.sentences import Truth, false_claims
from xorack.errors import OutputDiffersError
from xorack.spark.missing import why

UNIT = ("order", "line")
CHANGED = {
    "a key was corrected": "if(order = 6 AND line = 3, 199, line)",
    "rows were replaced": "if(order = 6 AND line < 4, line + 200, line)",
}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def run(started):
    return started


def units_of(frame):
    return [(row["order"], row["line"]) for row in frame.select(*UNIT).collect()]


def job_of(run, where="true"):
    """Return the input with units, as a job reads it."""
    return run.read().transform(run.rows.with_unit).where(where)


def finish(run, output, written, started=LINES, **options):
    """Finish an output that has these units; check each sentence, and return the error."""
    run.sent()
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(output, **options)
    rows = [row.asDict() for row in lines_of(run.spark, started).collect()]
    truth = Truth(rows, Counter(written), UNIT)
    assert false_claims(str(caught.value), truth, requests_in(run.sent()), len(SIZES)) == []
    return caught.value


def billed(run, job, *by, name="billed", frame=None):
    sums = run.rows.evidence(job if frame is None else frame)
    return run.write(job.groupBy(*(by or ["sku"])).agg(*sums), name)


@pytest.mark.parametrize(
    ("change", "has_frame"),
    [
        ("a key was corrected", True),
        slow("rows were replaced", True),
        slow("rows were replaced", False),
    ],
)
def test_a_source_that_is_not_what_was_started_names_no_row(run, tmp_path, change, has_frame):
    """A row that is only in the changed source was not started, so it cannot be missing."""
    new_run = run.again(run_id="new", root=tmp_path)
    new_run.rows.start(new_run.write_lines())
    rows = new_run.read().withColumn("line", F.expr(CHANGED[change]))
    new_run.write(rows, "changed")
    new_run.write(new_run.read("changed"), "lines")
    job = job_of(new_run, "line < 190")
    error = finish(new_run, billed(new_run, job, "order"), units_of(job), recompute=has_frame)
    assert error.found.rows.count() == 0
    assert error.missing == []
    assert "the source is not what was started: it has 154 units, as many as" in str(error)
    assert ".candidates" not in str(error)  # it lacks the row that was corrected
    assert f"chains of which the source differs: {tag(6, new_run.run_id)} (120 of 120)" in str(
        error
    )


def test_another_copy_of_the_source_names_no_row(run):
    job = job_of(run, "line <> 7")
    audit = run.rows.audit(billed(run, job))
    copy = run.read().withColumn("order", F.col("order") + 10)
    found = audit.missing_rows(copy, rows=copy.where("line <> 7").transform(run.rows.with_unit))
    assert (found.named, found.is_exact) == (0, False)
    assert found.proof.startswith("the source is not what was started: it has 154 units, as many")


def test_a_source_of_which_a_row_has_another_chain_names_no_row(run):
    """All units are those that were started: only the sums by chain show the change."""
    run = run.again(run_id="apart")
    lines = run.tracking.rows("apart", chain="order", unit="id")
    rows = lines_of(run.spark).withColumn("id", F.expr("order * 1000 + line"))
    lines.start(run.write(rows, "apart"))
    moved = run.read("apart").withColumn("order", F.expr("if(id = 6003, 5, order)"))
    source = run.write(moved, "moved")
    job = run.read("moved").transform(lines.with_unit).where("line <> 7")
    output = run.write(job.groupBy("order").agg(*lines.evidence(job)), "billed")
    with pytest.raises(OutputDiffersError, match="the source is not what was started: chains of"):
        lines.finish(output, source=source)


def test_units_that_are_twice_in_the_source(run, tmp_path):
    """The job keeps the last version of each row: it is no reason, and no row has a name."""
    new = run.again(run_id="twice", root=tmp_path)
    again = lines_of(run.spark).where("line < 2 AND order > 1")
    rows = lines_of(run.spark).withColumn("version", F.lit(1))
    rows = rows.unionAll(again.withColumn("version", F.lit(2)))
    with pytest.warns(UserWarning, match=r": 5 units occur more than once, in 10 of 159 rows, "):
        new.rows.start(new.write(rows, "lines"))
    last = job_of(new).orderBy(F.desc("version")).coalesce(1).dropDuplicates(["order", "line"])
    source = [*LINES, *((order, 1) for order in range(2, 7))]
    error = finish(new, billed(new, last), LINES, source)
    reason = "5 units of 'lines' are there twice in the source; one row of each is missing"
    assert error.why == reason
    assert (error.found.rows.count(), error.found.repeated.count()) == (0, 10)
    assert "pass the aggregated frame" not in str(error)
    last = last.where("order <> 3")
    error = finish(new, billed(new, last), units_of(last), source)
    assert error.why == f"4{reason[1:]}; order = 3: 6 of 6 missing rows, 0 of 153 others"
    assert units_of(error.found.rows.where("line = 1")) == [(3, 1)] * 2


def test_a_unit_of_several_rows_is_listed_once(run, tmp_path):
    new, part = run.again(run_id="listed", root=tmp_path), "order = 6 AND line <= 30"
    source = [*LINES, *((6, line) for line in range(1, 31))]
    with pytest.warns(UserWarning, match="30 units occur more than once, in 60 of 184 rows"):
        new.rows.start(new.write_lines(source))
    kept, again = job_of(new, f"NOT ({part})"), job_of(new).unionAll(job_of(new, part))
    for word, job in {"missing": kept, "doubled": again}.items():
        error = finish(new, billed(new, job), units_of(job), source)
        assert f"\n{word}, by (order, line): " in str(error)
        assert str(error).count("), and 10 more") == 1


@pytest.mark.slow
def test_a_source_may_have_columns_of_any_name(run, monkeypatch):
    """The columns that a comparison adds to a source have names that no source has."""
    monkeypatch.setattr(why, "SAMPLE", 30)
    names = ("state", "n", "missing_count", "is_named", "is_drawn", "kept", "unit", "sign", "other")
    rows = lines_of(run.spark).withColumns({name: F.col("line") for name in names})
    rows = rows.withColumn("order", F.concat(F.lit("a\n"), "order"))
    run = run.again(run_id="any")
    lines = run.tracking.rows("any", chain="order", unit=["order", "state"])
    lines.start(run.write(rows, "any"))
    for has_frame in (True, False):
        job = run.read("any").transform(lines.with_unit).where("state > 1 OR order = 'a\n6'")
        sums = job.groupBy("order", "n").agg(*lines.evidence(job if has_frame else None))
        with pytest.raises(OutputDiffersError) as caught:
            lines.finish(run.write(sums, "billed"))
        assert {*caught.value.missing} == {(f"a\n{order}", 1) for order in range(1, 6)}
        assert caught.value.found.rows.columns == rows.columns
        assert ": 5 of 5 missing rows, " in caught.value.why
        assert "any/order/a\\n1 (0 of 1), " in str(caught.value)


@pytest.mark.parametrize("sample", [slow(4_000), 30])
def test_a_condition_has_the_counts_of_all_rows(run, monkeypatch, sample):
    monkeypatch.setattr(why, "SAMPLE", sample)
    job = job_of(run, "NOT (sku = 'sku 1' AND line < 90)")
    error = finish(run, billed(run, job), units_of(job))
    keys = [(order, line) for order, line in LINES if (order * 7 + line) % 5 == 1]
    lost = len([1 for _, line in keys if line < 90])
    rest = f"{len(keys) - lost} of {len(LINES) - lost} others"
    assert f"sku = 'sku 1': {lost} of {lost} missing rows, {rest}" in str(error.found.explain())


@pytest.mark.slow
@pytest.mark.parametrize("type_", [slow("timestamp"), "timestamp_ntz"])
def test_times_in_reasons_are_in_the_zone_of_the_session(
    run, tmp_path, monkeypatch, configure, type_
):
    """The driver has another zone, and the counts are those of all rows."""
    monkeypatch.setattr(why, "SAMPLE", 100)
    configure("spark.sql.session.timeZone", "Asia/Tokyo")
    at = "timestamp'2026-01-31 00:00:00' + make_dt_interval(0, 0, id)"
    columns = "int(id div 90) AS order", "int(id % 90) AS line", f"CAST({at} AS {type_}) AS at"
    new = run.again(run_id="zone", root=tmp_path)
    new.rows.start(new.write(run.spark.range(540).selectExpr(*columns), "lines"))
    job = job_of(new, "at < '2026-01-31 06:40:00'")
    with pytest.raises(OutputDiffersError) as caught:
        new.rows.finish(new.write(job.groupBy("order").agg(*new.rows.evidence(job)), "billed"))
    rest = "0 of 400 others"
    assert caught.value.why == f"at >= 2026-01-31 06:40:00: 140 of 140 missing rows, {rest}"


@pytest.mark.each_version
def test_missing_rows_of_any_year_have_names(run, tmp_path, configure):
    """Python has only the years 1 to 9999, and PySpark 3 collects binary values as bytearrays."""
    configure("spark.sql.execution.pyspark.binaryAsBytes", "false")
    for type_ in ("datetime", "int96"):  # Spark 3 refuses to write old dates otherwise
        configure(f"spark.sql.parquet.{type_}RebaseModeInWrite", "CORRECTED")
    moments = "make_timestamp(year, 6, 1, 0, 0, 0) AS at", "year", "X'00ff' AS code"
    rows = run.spark.sql("SELECT explode(array(-3, 1, 2026, 9999, 12000)) AS year")
    rows = rows.selectExpr(*moments).selectExpr(
        "date(at) AS day", "at", "CAST(at AS timestamp_ntz) AS wall", "year", "code"
    )
    new = run.again(run_id="years", root=tmp_path)
    lines = new.tracking.rows("lines", chain="year", unit=["day", "at", "wall", "code", "year"])
    lines.start(new.write(rows, "lines"))
    job = new.read().transform(lines.with_unit).where("year = 2026")
    with pytest.raises(OutputDiffersError) as caught:
        lines.finish(new.write(job.groupBy("year").agg(*lines.evidence(job)), "billed"))
    names = {
        (f"{year}-06-01", *[f"{year}-06-01 00:00:00"] * 2, b"\x00\xff", int(year))
        for year in ("-0003", "+12000")
    }
    for year in (1, 9999):
        wall = datetime(year, 6, 1)
        at = wall.replace(tzinfo=timezone.utc).astimezone().replace(tzinfo=None)
        names.add((wall.date(), at, wall, b"\x00\xff", year))
    assert {*caught.value.missing} == names


def test_a_row_without_a_chain_may_be_of_any_year(run):
    """The output's chains are unknown, and its rows are named by their units."""
    job = job_of(run, "line <> 7").withColumns(
        {"order": F.expr("if(line = 1, NULL, order)"), "day": F.expr("make_date(12000, 1, 1)")}
    )
    error = finish(run, run.write(job, "without"), [keys for keys in LINES if keys[1] != 7])
    assert {*error.missing} == {keys for keys in LINES if keys[1] == 7}


def test_dropped_duplicates_by_columns_of_any_type(run, tmp_path, monkeypatch):
    """The key is found in samples, and tested against all rows."""
    monkeypatch.setattr(why, "SAMPLE", 100)
    new = run.again(run_id="duplicates", root=tmp_path)
    rows = run.spark.range(400).selectExpr(
        *("int(id) AS line", "int(id % 7) AS order"),
        "CAST(id div 2 % 20 AS decimal(15, 2)) AS price",
        "date_add(date'2026-01-01', int(id div 40)) AS day",
    )
    new.rows.start(new.write(rows, "lines"))
    kept = job_of(new).coalesce(1).dropDuplicates(["price", "day"])
    with pytest.raises(OutputDiffersError) as caught:
        new.rows.finish(new.write(kept.groupBy("order").agg(*new.rows.evidence(kept)), "billed"))
    same = "Each of the 200 missing rows has a row with the same price, day that is in the output"
    assert caught.value.why == same


def test_frames_of_outputs_among_frames_of_previews(run):
    """All frames are tried in each combination, in any order of the evidence."""
    jobs = [job_of(run, f"line <> 7 AND line % 3 = {n}") for n in range(3)]
    outputs = [billed(run, job, name=f"billed{n}") for n, job in enumerate(jobs)]
    for rows in (3, 5):
        run.rows.evidence(job_of(run).limit(rows))
    error = finish(run, outputs, [keys for keys in LINES if keys[1] != 7])
    assert sorted(units_of(error.found.rows)) == [(order, 7) for order in (4, 5, 6)]
    assert error.why == "line = 7: 3 of 3 missing rows, 0 of 151 others"


def test_a_dimension_that_was_loaded_late(run):
    skus = run.read().select("sku").distinct()
    path = run.write(skus.where("sku <> 'sku 1'"), "skus")
    rows = job_of(run).join(run.spark.read.parquet(path), "sku")
    output = billed(run, rows, "order", frame=rows)
    written = units_of(rows)
    skus.where("sku = 'sku 1'").write.mode("append").parquet(path)
    late = job_of(run).join(run.spark.read.parquet(path), "sku")
    later = "So rows were lost later, in the aggregation or its write, or a source of the"
    for frames in (late, [late.where("order < 6"), late.where("order = 6")]):
        error = finish(run, output, written, rows=frames)
        assert f"computed again, are all rows that were started. {later}" in error.found.proof
        assert later in str(error)


def test_an_old_row_that_a_merge_has_kept(run):
    job = job_of(run, "line > 70 OR order < 6")
    path = billed(run, job, "order")
    nulls = (f"bigint(NULL) AS {name}" for name in run.rows.evidence_names)
    old = run.spark.read.parquet(path).limit(1).selectExpr("order + 90 AS order", *nulls)
    run.write(old, "old")
    error = finish(run, [path, str(run.root / "old")], units_of(job))
    lines = str(error).splitlines()
    assert lines.index("70 of 70 missing rows can be named") < lines.index(
        "1 row of the output has no evidence: did another job write it?"
    )


def test_every_chain_that_stays_open_has_a_note_without_names_and_frame(run):
    job = job_of(run)
    doubled = job.unionAll(job.where("line % 2 = 1 AND order <> 1"))
    path = run.write(doubled.groupBy().agg(*run.rows.evidence()), "one row")
    error = finish(run, path, units_of(doubled))  # it checks that each chain has a note
    assert (error.found.named, error.found.is_exact) == (0, False)
    assert "all chains stay open" in str(error)


def test_rows_are_the_aggregated_frame_and_source_is_the_input(run):
    job = job_of(run, "order <> 4")
    path = run.write(job.groupBy("sku").agg(*run.rows.evidence()), "billed")
    options = {"rows": job, "source": run.read()}
    error = finish(run, path, units_of(job), **options)
    found = run.rows.audit(path).missing_rows(**options)
    for rows in (error.found.rows, found.rows):
        assert sorted(units_of(rows)) == [keys for keys in LINES if keys[0] == 4]
    assert error.found.proof == found.proof
    assert "the job's rows, computed again, are those of the output" in found.proof
