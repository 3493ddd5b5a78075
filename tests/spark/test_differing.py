"""Outputs that differ: no wrong name, no false sentence, and a note on every chain that is open."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import LINES, SIZES, Run, lines_of, part_files, requests_in, tag
from tests.support.queue_server import QueueServer
from xorack import unit_id
from xorack.errors import ArgumentError, OutputDiffersError, StateError
from xorack.spark import TrackedRows
from xorack.spark.missing import comparing
from xorack.spark.units import GLOB

ALL, CHAINS = len(LINES), len(SIZES)


@pytest.fixture
def run(started):
    return started


@pytest.fixture
def new_run(run, tmp_path):
    """Return a run of which no job has started rows, in a folder of its own."""
    return run.again(run_id="new", root=tmp_path)


def finish(run, output, lines=None, **options):
    """Finish an output that differs; return the error, the notes by tag and the tags of stamps."""
    with pytest.raises(OutputDiffersError) as caught:
        (lines or run.rows).finish(output, **options)
    sent = requests_in(run.sent())
    stamped = {request.tag for request in sent if request.op == "stamp"}
    return caught.value, {r.tag: r for r in sent if r.op == "note"}, stamped


def billed(run, frame, *by, name="billed", **options):
    return run.write(run.bill(frame, *by, **options), name)


def named(error):
    return sorted((row["order"], row["line"]) for row in error.found.rows.collect())


def lost_later(flag):
    """Return a condition that loses another position once a file is there."""

    def is_kept(position):
        return position != (7 if Path(flag).exists() else 3)

    return F.udf(is_kept, "boolean", useArrow=False)


def test_chains_that_agree_finish_in_each_call_and_the_others_are_named(run):
    output = billed(run, run.read().where("NOT (order = 2 OR order = 6 AND line = 9)"), "order")
    error, notes, stamped = finish(run, output)
    first = str(error).splitlines()[0]
    chains = f"2 of 6 chains stay open: {tag(2)} (0 of 2), {tag(6)} (119 of 120); 4 are acked"
    assert first == f"151 of 154 units of 'lines' are in the output: {chains}"
    assert stamped == {tag(order) for order in (1, 3, 4, 5)}
    assert {t: (note.missing_count, len(note.missing)) for t, note in notes.items()} == {
        tag(2): (2, 2),
        tag(6): (1, 1),
    }
    assert notes[tag(6)].text.startswith("1 of 120 units of lines is not in the output; ")

    # Chains that an earlier call finished are counted.
    error, _, stamped = finish(run, billed(run, run.read().where("order NOT IN (1, 2)"), "order"))
    assert stamped == {tag(order) for order in (3, 4, 5, 6)}
    assert f"1 of 6 chains stays open: {tag(2)} (0 of 2); 5 are acked" in str(error)
    error, _, stamped = finish(run, billed(run, run.read().where("order <> 3"), "order"))
    assert stamped == {tag(order) for order in (1, 2, 4, 5, 6)}
    assert "no chain stays open: all 6 are acked" in str(error)
    assert run.rows.finish(billed(run, run.read())).chains == CHAINS
    error, _, _ = finish(run, billed(run, run.read().where("line <> 2")))
    assert "149 of 154 units of 'lines' are in the output: no chain stays open" in str(error)
    assert "no chain stays open: all 6 are acked" in str(error)

    twice = run.read().unionAll(run.read().where("order = 1"))  # it has one line
    error, notes, _ = finish(run, billed(run, twice, "order"))
    assert notes[tag(1)].text.startswith("1 unit of lines too many is in the output; ")
    assert "the output has 1 row too many" in str(error)


def test_chains_that_an_earlier_call_finished_do_not_stay_open_if_the_input_lost_rows(new_run):
    new_run.rows.start(new_run.write_lines())
    finish(new_run, billed(new_run, new_run.read().where("order <> 2"), "order"))
    source = new_run.write(new_run.read().where("order NOT IN (2, 3)"), "less")
    error, _, _ = finish(new_run, billed(new_run, new_run.read("less")), source=source)
    assert "the job's input lost 7 rows that were started" in str(error)
    assert "are in the output: 1 of 6 chains stays open; 5 are acked" in str(error)


def test_chains_that_a_killed_call_may_have_finished_are_not_said_to_stay_open(
    new_run, monkeypatch
):
    """The call dies after it has sent stamps, before it records them."""
    new_run.rows.start(new_run.write_lines())
    send = TrackedRows._send

    def killed(self, *given):
        send(self, *given)
        raise KeyboardInterrupt

    output = billed(new_run, new_run.read().where("order <> 2"), "order")
    with monkeypatch.context() as patch:
        patch.setattr(TrackedRows, "_send", killed)
        with pytest.raises(KeyboardInterrupt):
            new_run.rows.finish(output)
    acked = {request.tag for request in requests_in(new_run.sent()) if request.op == "stamp"}
    why = "because an earlier call stopped while it sent stamps"
    error, _, _ = finish(new_run, billed(new_run, new_run.read().where("order <> 1"), "order"))
    assert {tag(1, "new")} <= acked
    some = f"{tag(1, 'new')} (0 of 1); at least 5 are acked, {why}"
    assert f": at most 1 of 6 chains stays open: {some}\n" in str(error)
    source = new_run.write(new_run.read().where("order NOT IN (1, 3)"), "less")
    error, _, _ = finish(new_run, billed(new_run, new_run.read("less")), source=source)
    assert f": at most 1 of 6 chains stays open; at least 5 are acked, {why}\n" in str(error)
    new_run.rows.finish(billed(new_run, new_run.read()))
    error, _, _ = finish(new_run, billed(new_run, new_run.read().where("order <> 3")))
    assert ": no chain stays open: all 6 are acked\n" in str(error)


def test_a_source_without_units_leaves_no_open_chain_without_a_note(run):
    output = billed(run, run.read().where("line <> 2"), "order")
    error, notes, stamped = finish(run, output, source=run.read().drop("line"))
    why = "the source cannot be compared: column line is not in the frame, which has 'order', "
    assert f"\n{why}" in str(error)
    assert (stamped, len(notes)) == ({tag(1)}, CHAINS - 1)
    assert notes[tag(2)].text.startswith(
        f"1 of 2 units of lines is in this chain of the output; {why}"
    )


def test_a_chain_that_was_not_started_does_not_stay_open(new_run):
    """Chain 4 has failed at the start, and chain 7 is unknown."""
    failed = new_run.spark.createDataFrame([(4, "no file")], "order int, failed string")
    new_run.rows.start(new_run.write_lines(), chains=failed)
    rows = new_run.read().where("NOT (order = 5 AND line = 9)")
    unknown = rows.where("order = 2").withColumn("order", F.lit(7))
    error, _, stamped = finish(new_run, billed(new_run, rows.union(unknown), "order"))
    assert stamped == {tag(order, "new") for order in (1, 2, 3, 6)}
    assert f": 1 of 5 chains stays open: {tag(5, 'new')} (16 of 17); 4 are acked" in str(error)


@pytest.mark.slow
def test_rows_lost_and_rows_doubled_have_a_reason_each(run):
    """A dimension with duplicates, and a filter."""
    double = F.broadcast(run.spark.range(2).toDF("n"))
    rows = run.read().join(double, F.expr("n = 0 OR sku = 'sku 1'")).where("line <> 7").drop("n")
    error, _, _ = finish(run, billed(run, rows, "order"))
    lost = "line = 7: 3 of 3 missing rows, 0 of 151 others"
    doubled = len([1 for order, line in LINES if (order * 7 + line) % 5 == 1 and line != 7])
    assert error.why.startswith(f"{lost}; sku = 'sku 1': {doubled} of {doubled} doubled rows, ")
    head = f"151 of 154 units of 'lines' are in the output, and {doubled} too many: "
    assert str(error).startswith(head)


@pytest.mark.slow
def test_an_append_in_place_of_an_overwrite(run):
    path = billed(run, run.read())
    run.spark.read.parquet(path).write.mode("append").parquet(path)
    error, _, stamped = finish(run, path)
    assert "all rows are there twice" in str(error)
    assert stamped == set()


@pytest.mark.parametrize("damage", ["gone", pytest.param("broken", marks=pytest.mark.slow)])
def test_an_input_that_cannot_be_read_is_said_after_the_loss(new_run, damage):
    run = new_run
    run.rows.start(run.write_lines())
    run.sent()
    output = billed(run, run.read().where("order <> 2"), "order")
    for part in part_files(run.root / "lines"):
        part.with_name(f".{part.name}.crc").unlink()
        part.unlink() if damage == "gone" else part.write_bytes(part.read_bytes()[:90])
    error, notes, stamped = finish(run, output)
    first, *_, last = str(error).splitlines()
    assert first.startswith("at most 152 of 154 units of 'lines' are in the output: 1 of 6 chains ")
    assert re.search("cannot be read|could not be found", str(error)), last
    assert notes.keys() == {tag(2, "new")}
    assert len(stamped) == CHAINS - 1


def test_units_without_a_record_of_columns_are_told_in_both_numbers(run):
    """An audit says what is missing and what is too many, and no net of both."""
    lost = run.read().where("order <> 4").unionAll(run.read().where("order = 4").limit(0))
    table = lost.unionAll(lost.where("order = 3")).unionAll(lost.where("order = 6").limit(4))
    audit = run.rows.audit(run.write(table, "table"))
    assert str(audit).startswith(
        "at most 145 of 154 units of 'lines' are in the table, and at least 9 too many; chains: "
    )


def test_nothing_is_computed_again_where_that_is_not_wanted(run):
    read = run.read().where("line <> 7").where("raise_error('computed') IS NULL OR line = 0")
    good = run.bill(run.read().where("line <> 7"), "order")
    run.bill(read)
    error, _, _ = finish(run, run.write(good, "out"), recompute=False)
    assert "computed again" not in str(error)
    assert named(error) == [(order, 7) for order in (4, 5, 6)]


@pytest.mark.each_version
def test_more_differing_rows_than_the_driver_collects(run, tmp_path, monkeypatch):
    """The frame is computed again for the rows, and compared again."""
    monkeypatch.setattr(comparing, "_MAX_COLLECTED", 3)
    output = billed(run, run.read().where(lost_later(tmp_path / "late")("line")), "order")
    error, notes, _ = finish(run, output)
    lost = [(order, 3) for order in (3, 4, 5, 6)]
    assert (named(error), {*notes}) == (lost, {tag(order) for order, _ in lost})
    assert error.why == "line = 3: 4 of 4 missing rows, 0 of 150 others"
    (tmp_path / "late").touch()
    for again in (lambda: error.found.rows, error.found.explain):
        with pytest.raises(StateError, match="the rows cannot be named again: the source or the"):
            again()


def test_units_in_other_chains_than_at_the_start(new_run):
    """The started rows tell whether units of two chains are equal; a changed source does not."""
    path = new_run.write_lines()
    by_sku = {"chain": "sku", "unit": ["order", "line"]}
    of_path = new_run.tracking.rows("lines", label="path", **by_sku)
    of_frame = new_run.tracking.rows("frame", label="frame", **by_sku)
    of_path.start(path)
    of_frame.start(new_run.read())
    moved = new_run.read().withColumn("sku", F.lit("sku 1"))
    changed = moved.withColumn("line", F.expr("if(order = 1, 99, line)"))
    source = new_run.write(changed, "changed")

    def billed(rows):
        sums = moved.transform(rows.with_unit).groupBy("sku").agg(*rows.evidence())
        return new_run.write(sums, f"moved {rows.name}")

    assert of_path.finish(billed(of_path), source=source).missing == 0
    with pytest.raises(OutputDiffersError) as caught:
        of_frame.finish(billed(of_frame), source=source)
    units = f"the output has {len(LINES)} units of 'frame'"
    assert str(caught.value).startswith(f"{units}, all that were started, but in other chains: ")


def cached(run):
    """Return the ids of what is cached. Other tests leave some of their frames in the cache."""
    return {*run.spark.sparkContext._jsc.getPersistentRDDs()}


@pytest.mark.slow
def test_no_cache_and_no_setting_is_left_behind(run):
    before = {row["key"]: row["value"] for row in run.spark.sql("SET").collect()}
    cached_before = cached(run)
    finish(run, billed(run, run.read().where("line <> 7"), "order"))
    assert cached(run) <= cached_before
    assert {row["key"]: row["value"] for row in run.spark.sql("SET").collect()} == before


def test_threads_beside_a_users_query(run):
    """Each thread has a run or a name of its own: it names its rows, and frees its caches alone."""
    shared = run.again(run_id="shared").tracking
    own = run.read().groupBy("sku").count().cache()
    before = {row["sku"]: row["count"] for row in own.collect()}
    cached_before = cached(run)
    settings = {row["key"]: row["value"] for row in run.spark.sql("SET").collect()}

    def lose(number):
        tracking = shared if number % 2 else run.again(run_id=f"thread{number}").tracking
        lines = tracking.rows(
            f"n{number}", chain="order", unit=["order", "line"], label=f"l{number}"
        )
        lines.start(str(run.root / "lines"))
        kept = run.read().where(f"line <> {number}").transform(lines.with_unit)
        path = run.write(kept.groupBy("sku").agg(*lines.evidence(kept)), f"out{number}")
        with pytest.raises(OutputDiffersError) as caught:
            lines.finish(path)
        return named(caught.value)

    def query(_):
        return {row["sku"]: row["count"] for row in own.collect()}

    with ThreadPoolExecutor(6) as pool:
        queries = pool.map(query, range(20))
        lost = [*pool.map(lose, range(1, 4))]
        assert [*queries] == [before] * 20
    assert lost == [[key for key in LINES if key[1] == number] for number in range(1, 4)]
    assert cached(run) <= cached_before
    assert {row["key"]: row["value"] for row in run.spark.sql("SET").collect()} == settings
    own.unpersist()


@pytest.mark.each_version
def test_a_partition_that_a_dynamic_overwrite_left_from_yesterday(run, configure):
    """Only the rows of that partition are replaced by others; the error does not say all."""
    configure("spark.sql.sources.partitionOverwriteMode", "dynamic")
    path = str(run.root / "daily")
    yesterday = run.again(run_id="2026-01-30").rows
    for lines, kept in ((yesterday, run.read()), (run.rows, run.read().where("sku <> 'sku 1'"))):
        bills = run.bill(kept, rows=lines)
        bills.write.mode("overwrite").partitionBy("sku").parquet(path)
    error, notes, _ = finish(run, path)
    lost = len([key for key in LINES if (key[0] * 7 + key[1]) % 5 == 1])
    assert error.why == f"sku = 'sku 1': {lost} of {lost} suspect rows, 0 of {ALL - lost} others"
    assert f"computed again, {lost} rows are missing and 0 are too many" in str(error)
    assert (named(error), len(notes)) == ([], CHAINS)


def test_missing_units_that_the_run_tolerates(spark, queue, tmp_path):
    """The chains finish at once; report, note and their number say what is missing."""
    run = Run(spark, queue, tmp_path, {"tolerated_units": 2})
    run.rows.start(run.write_lines())
    creates = requests_in(run.sent())
    assert {request.tolerated_units for request in creates} == {0}
    rows = run.read().where("NOT (order = 5 AND line IN (1, 2) OR order = 1)")
    report = run.rows.finish(billed(run, rows))
    sent = requests_in(run.sent())
    assert (report.chains, report.units, report.tolerated) == (CHAINS, ALL - 3, 3)
    assert {r.tag for r in sent if r.op == "stamp"} == {tag(n) for n in range(1, CHAINS + 1)}
    notes = {r.tag: r for r in sent if r.op == "note"}
    ids = {unit_id("2026-01-31/lines", *keys) for keys in ((1, 1), (5, 1), (5, 2))}
    assert {id for note in notes.values() for id in note.missing} == ids
    assert notes[tag(5)].text == (
        "2 of 17 units of lines are not in the output; up to 2 are tolerated"
    )
    error, _, stamped = finish(run, billed(run, rows.where("order <> 2 AND order <> 3"), "order"))
    assert stamped == {tag(n) for n in (1, 2, 4, 5, 6)}
    assert "no chain stays open: all 6 are acked" in str(error)


@pytest.mark.each_version
def test_a_folder_whose_name_is_a_pattern_for_spark(new_run):
    path = Path(new_run.write_lines(name="plain")).rename(new_run.root / "in [2026] {x}")
    assert new_run.rows.start(str(path)).units == ALL
    bills = new_run.bill(new_run.spark.read.parquet(str(path).translate(GLOB)))
    assert new_run.rows.finish(new_run.write(bills, "out [2026] {x}")).units == ALL


@pytest.mark.each_version
def test_a_partitioned_output_without_rows_has_no_files(run):
    rows = run.read().where("order > 90")
    path = str(run.root / "nothing")
    run.bill(rows).write.mode("overwrite").partitionBy("sku").parquet(path)
    error, notes, stamped = finish(run, path)
    head = f"0 of {ALL} units of 'lines' are in the output: all chains stay open"
    assert str(error).startswith(f"{head}\nall {ALL} rows are missing")
    assert (len(notes), stamped) == (CHAINS, set())
    assert run.rows.audit(path).found == 0
    assert run.rows.audit([path, path]).missing_rows(run.read()).missing == ALL
    with pytest.raises(ArgumentError, match=r"nothing' cannot be read: it has no files"):
        run.again(run_id="none").rows.start(path)
    (run.root / "nothing" / "sku=x").mkdir()
    (run.root / "nothing" / "sku=x" / "a.csv").write_text("1")
    with pytest.raises(ArgumentError, match=r"'.*nothing' cannot be read: "):
        run.rows.finish(path)


def test_unit_columns_that_an_insert_has_swapped(run):
    swapped = run.read().selectExpr("line AS order", "order AS line", "sku")
    error, notes, _ = finish(run, run.write(swapped, "swapped"))
    first, sentence = str(error).splitlines()
    assert first.startswith("the output lacks the units of 'lines' that were started: all chains")
    assert sentence == (
        "the unit columns order and line are swapped in the output, because an INSERT takes "
        "columns by position: list their names in it"
    )
    assert len(notes) == CHAINS


@pytest.mark.slow
def test_windows_that_are_observed_again_with_other_rows_name_none(spark, tmp_path):
    """The frame is computed again for the names: what it has then is not what was written."""
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path)
        log = run.tracking.windows("log", partition="p", position="o")
        source = spark.range(10).selectExpr("'t' AS p", "id AS o")
        log.open("w", {"t": 10})
        rows = source.where(lost_later(tmp_path / "late")("o")).transform(log.with_unit)
        sums = rows.groupBy("p", "o").agg(*log.evidence(rows))
        observed = log.observe(sums, lambda frame: frame.write.parquet(f"{tmp_path}/out"))
        (tmp_path / "late").touch()
        with pytest.raises(
            OutputDiffersError, match=r"the frame that evidence was given does not add up"
        ) as caught:
            log.batch(0).finish(observed=observed, source=source)
        assert caught.value.missing == []


def test_a_folder_of_the_input_that_is_gone(new_run):
    """Spark cannot list several folders if one of them does not exist."""
    path = new_run.root / "lines"
    lines_of(new_run.spark, files=1).write.partitionBy("sku").parquet(str(path))
    new_run.rows.start(str(path))
    shutil.rmtree(path / "sku=sku 1")
    billed = new_run.write(new_run.bill(new_run.read()), "billed")
    with pytest.raises(OutputDiffersError, match="1 of 5 files is missing or empty since then"):
        new_run.rows.finish(billed)


def test_an_input_that_has_lost_all_of_its_files(new_run):
    """A job that gives a schema reads no rows, and writes no files."""
    path = new_run.root / "lines"
    lines_of(new_run.spark, files=1).write.partitionBy("sku").parquet(str(path))
    new_run.rows.start(str(path))
    new_run.sent()
    for part in path.rglob("*.parquet"):
        part.unlink()
    schema = "order int, line int, amount int, sku string"
    bills = new_run.bill(new_run.spark.read.schema(schema).parquet(str(path)))
    bills.write.partitionBy("sku").parquet(output := str(new_run.root / "billed"))
    report = new_run.rows.finish(output, allow_missing=True)
    assert (report.chains, report.units, report.missing) == (0, 0, ALL)
    notes = [request for request in requests_in(new_run.sent()) if request.op == "note"]
    assert sum(note.missing_count for note in notes) == ALL
    error, _, _ = finish(new_run, output)
    assert f"input lost {ALL} rows that were started: 5 of 5 files are missing" in str(error)
