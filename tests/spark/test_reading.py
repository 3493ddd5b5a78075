"""What Spark leaves out in silence is refused, or read all the same: a case for each setting."""

from __future__ import annotations

import gzip
import re
import shutil
import warnings
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import functions as F

from tests.spark.orders import LINES, lines_of, part_files
from xorack.errors import ArgumentError, ColumnsError
from xorack.spark.reading import SKIPPING, check_reading
from xorack.spark.storage import files_below

pytestmark = pytest.mark.each_version
SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreInvalidPartitionPaths": "TRUE",
    "spark.sql.files.ignoredPathSegmentRegex": "^[._]|^part-00001",
    "spark.sql.hive.verifyPartitionPath": "true",
    "spark.files.ignoreCorruptFiles": "true",
    "spark.files.ignoreMissingFiles": "true",
}
OPTIONS = {
    "ignoreCorruptFiles": "true",
    "ignoreMissingFiles": "true",
    "ignoreInvalidPartitionPaths": "true",
    "mode": "dropMalformed",
    "badRecordsPath": "/bad",
    "failOnDataLoss": "false",
}
FAST = {"spark.sql.files.ignoreCorruptFiles", "mode"}


def cases(table):
    return [
        pytest.param(name, value, id=name, marks=[pytest.mark.slow] * (name not in FAST))
        for name, value in table.items()
    ]


def test_each_has_a_case():
    options, settings, _ = map(set, zip(*SKIPPING, strict=True))
    assert (settings - {""}, options - {""}) == ({*SETTINGS}, {*OPTIONS})


@pytest.mark.parametrize(("name", "value"), cases(SETTINGS))
def test_a_setting_is_refused_for_a_frame(run, configure, name, value):
    path = run.write_lines()
    if name == "spark.sql.hive.verifyPartitionPath" and not pyspark.__version__.startswith("3"):
        pytest.skip("Spark 4 has no such setting")
    # Spark takes some at its start alone, which tests cannot repeat.
    configure("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    configure(name, value)
    with pytest.raises(
        ArgumentError, match=re.escape(f"written: {name} is {value}: Spark may skip rows")
    ):
        run.rows.start(run.spark.read.parquet(path))
    assert run.queue.bodies == []


@pytest.mark.parametrize(("name", "value"), cases(OPTIONS))
def test_an_option_is_refused(run, name, value):
    path = str(run.root / "csv")
    lines_of(run.spark).write.csv(path)
    schema = "order int, line int, sku string, amount int"
    frame = run.spark.read.options(**{name: value}).schema(schema).csv(path)
    for given in (
        frame,
        frame.where("line > 1"),
        frame.join(lines_of(run.spark), ["order", "line"]),
    ):
        with pytest.raises(ArgumentError, match=f"^rows: {name} is {value}: Spark may skip rows"):
            check_reading(given, "rows")
    for harmless in ({"mode": "FAILFAST"}, {"ignoreCorruptFiles": "false"}):
        check_reading(run.spark.read.options(**harmless).schema(schema).csv(path), "rows")


@pytest.mark.parametrize("given", ["path", pytest.param("table", marks=pytest.mark.slow)])
def test_a_file_that_cannot_be_read_is_not_left_out(run, given):
    """Whatever the session says: neither of what was started, nor of the output."""
    spark, path = run.spark, run.write_lines()
    run.rows.start(path)
    run.sent()
    billed = run.write(run.bill(run.read(), "order"), "billed")
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        for place, call in ((path, run.again(run_id="next").rows.start), (billed, run.rows.finish)):
            if given == "table":
                spark.sql(f"CREATE TABLE corrupt USING parquet LOCATION '{place}'")
            spoiled = part_files(place)[0]
            spoiled.write_bytes(spoiled.read_bytes()[:100])
            spoiled.with_name(f".{spoiled.name}.crc").unlink()
            with pytest.raises(ArgumentError, match=r"^written: .*cannot be read.*"):
                call("corrupt" if given == "table" else place)
            if given == "table":
                spark.sql("DROP TABLE corrupt")
        assert run.queue.bodies == []
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.slow
def test_a_malformed_record_has_no_unit(run):
    """It is there, with nulls in place of its keys."""
    path = run.root / "csv"
    lines_of(run.spark, files=1).write.csv(str(path))
    (part,) = path.glob("part-*")
    part.write_text("x" + part.read_text())
    part.with_name(f".{part.name}.crc").unlink()
    schema = "order int, line int, sku string, amount int, bad string"
    for options in ({}, {"columnNameOfCorruptRecord": "bad"}):
        with pytest.raises(ColumnsError, match=r"column order is null"):
            run.rows.start(run.spark.read.schema(schema).options(**options).csv(str(path)))
    assert run.queue.bodies == []


@pytest.mark.slow
def test_rows_that_line_breaks_divide_are_refused(run):
    """Of CSV without multiLine: what follows the break is another row, with all the evidence."""
    run.rows.start(run.write_lines())
    run.sent()
    bills = run.bill(run.read().withColumn("sku", F.expr("concat(sku, chr(10), 'x')")))
    path = str(run.root / "broken")
    bills.write.csv(path, header=True)
    frame = run.spark.read.schema(bills.schema).csv(path, header=True)
    with pytest.raises(ArgumentError, match="have no evidence: if line breaks divide rows"):
        run.rows.finish(frame)
    right = run.spark.read.schema(bills.schema).csv(path, header=True, multiLine=True)
    assert run.rows.finish(right).units == len(LINES)


def test_units_that_are_no_good_are_warned_of(run):
    path = run.write(lines_of(run.spark, [keys for keys in LINES if keys[0] in (4, 5)]), "odd")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        run.rows.start(path)
    by_order = run.tracking.rows("pairs", chain="order", unit="order", label="pairs")
    with pytest.warns(
        UserWarning, match="columns order do not identify a row: 2 units .* in 26 of 26 rows"
    ):
        by_order.start(path)
    random = run.read("odd").withColumn("nr", F.expr("bigint(rand() * 1e18)"))
    by_number = run.tracking.rows("random", chain="order", unit="nr", label="random")
    with pytest.warns(UserWarning, match="random: the frame that was started is not determini"):
        by_number.start(random)


def leave_a_draft(folder):
    """A job that died leaves such a folder."""
    (folder / "_temporary" / "0").mkdir(parents=True)
    shutil.copy(part_files(folder)[0], folder / "_temporary" / "0")


def link_a_file(folder):
    part = part_files(folder)[0]
    part.rename(folder.parent / part.name)
    part.symlink_to(folder.parent / part.name)


def link_a_folder(folder):
    (folder.parent / "more").mkdir()
    part_files(folder)[0].rename(folder.parent / "more" / "part.parquet")
    (folder / "linked").symlink_to(folder.parent / "more", target_is_directory=True)


def link_to_nothing(folder):
    (folder / "gone.parquet").symlink_to("nowhere")


def name_with_a_colon(folder):
    part_files(folder)[0].rename(folder / "2026-01-31T12:00:00.parquet")


def empty_a_file(folder):
    part_files(folder)[-1].write_bytes(b"")


def move_to_a_folder_of_hive(folder):
    (folder / "HIVE_UNION_SUBDIR_1").mkdir()
    part_files(folder)[0].rename(folder / "HIVE_UNION_SUBDIR_1" / "000000_0")


def copy_under_hidden_names(folder):
    for name in ("_{}", "{}._COPYING_"):
        shutil.copy(part := part_files(folder)[0], folder / name.format(part.name))


@pytest.mark.parametrize(
    ("change", "skipped", "problem"),
    [
        (leave_a_draft, 1, "does not read 1 file or folder because of its name"),
        (copy_under_hidden_names, 2, "does not read 2 files or folders because of their names"),
        (empty_a_file, None, "1 of 3 files is empty or missing"),
        (move_to_a_folder_of_hive, None, r"1 file in a subfolder .*/HIVE_UNION_SUBDIR_1/000000_0"),
        (link_a_file, 0, ""),
        (
            link_a_folder,
            None,
            r"1 file in a subfolder is not read, such as .*/linked/part.parquet",
        ),
        (link_to_nothing, None, "1 of 3 files is empty or missing, such as .*/gone.parquet"),
        (name_with_a_colon, None, r"(?=.*12:00:00.parquet).*Relative path in absolute URI"),
    ],
)
def test_each_odd_file_is_read_or_named(run, change, skipped, problem):
    path = run.write_lines()
    for checksum in run.root.glob("lines/.*.crc"):
        checksum.unlink()
    run.spark.sql("DROP TABLE IF EXISTS odd")
    run.spark.sql(f"CREATE TABLE odd USING parquet LOCATION '{path}'")
    change(run.root / "lines")
    if skipped is None:
        for given in (path, "odd"):
            with pytest.raises(ArgumentError, match=f"^written: .*{problem}"):
                run.rows.start(given)
        assert run.queue.bodies == []
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        report = run.rows.start(path)
    assert (report.units, report.skipped) == (len(LINES), skipped)
    assert problem in "".join(str(one.message) for one in caught if one.category is UserWarning)


def test_texts_that_are_compressed_or_of_another_encoding(run):
    """Each member of a gzip file counts. What is cut off, or has NULs for keys, is refused."""
    (folder := run.root / "text").mkdir()
    lines = [f"{order},{line}\n".encode() for order, line in LINES]
    members = gzip.compress(b"".join(lines[:50])) + gzip.compress(b"".join(lines[50:]))

    def start(name, data, schema="order int, line int"):
        (folder / name).write_bytes(data)
        frame = run.spark.read.schema(schema).csv(str(folder))
        try:
            return run.again(run_id=name).rows.start(frame)
        finally:
            (folder / name).unlink()

    assert start("a.csv.gz", members).units == len(LINES)
    run.sent()
    with pytest.raises(ArgumentError, match="Unexpected end of input stream"):
        start("b.csv.gz", members[:-5])
    no_mark = b"".join(lines).decode().encode("utf-16-le")
    with pytest.raises(ColumnsError, match="column order is null"):
        start("c.csv", no_mark)
    with pytest.raises(ColumnsError, match="a value of a chain column contains NUL"):
        start("d.csv", no_mark, "order string, line string")
    assert run.sent() == []


def test_the_source_of_a_stream_is_checked_before_it_starts(run):
    folder = Path(run.write_lines(name="in [2026]"))
    schema = "order int, line int, sku string, amount int"

    def check(path, maxFileAge="36500d", **options):
        stream = run.spark.readStream.schema(schema).option("maxFileAge", maxFileAge)
        return run.rows.check_stream(stream.options(**options).parquet(path))

    escaped = str(folder).replace("[", "\\[").replace("]", "\\]")
    assert check(escaped) == 0
    assert check(escaped, "1h", latestFirst=True, maxFilesPerTrigger=1) == 0
    for options in ({}, {"latestFirst": True}, {"maxFilesPerTrigger": 1}):
        with pytest.raises(ArgumentError, match=r"^frame: maxFileAge is 1h: .* more than 1h older"):
            check(escaped, "1h", **options)
    with pytest.raises(ArgumentError, match=r"^frame: fileNameOnly is true: Spark leaves out"):
        check(escaped, fileNameOnly=True)
    with pytest.warns(UserWarning, match="arrive later and are more than 7d older") as caught:
        run.rows.check_stream(run.spark.readStream.schema(schema).parquet(escaped))
    assert [warning.filename for warning in caught] == [__file__]
    assert run.rows.check_stream(run.spark.readStream.format("rate").load()) == 0
    with pytest.raises(ArgumentError, match=r"^frame: .*are patterns: put a backslash before each"):
        check(str(folder))
    with pytest.raises(ArgumentError, match=r"^frame: ignoreCorruptFiles is true"):
        run.rows.check_stream(
            run.spark.readStream.schema(schema).option("ignoreCorruptFiles", True).parquet(escaped)
        )
    part_files(folder)[0].rename(folder / "_part.parquet")
    with pytest.warns(UserWarning, match="does not read 1 file or folder because of its name"):
        assert check(escaped) == 1
    (folder / "empty.parquet").write_bytes(b"")
    with pytest.raises(ArgumentError, match=r"^frame: 1 of 3 files is empty or missing"):
        check(escaped)
    (folder / "empty.parquet").unlink()
    (folder / "sub").mkdir()
    part_files(folder)[1].rename(folder / "sub" / "x.parquet")
    with pytest.raises(ArgumentError, match=r"^frame: 1 file in a subfolder is not read"):
        check(escaped)
    with pytest.warns(UserWarning, match="does not read 1 file "):
        assert check(escaped, recursiveFileLookup=True) == 1


@pytest.mark.parametrize("name", ["; isDirectory=false; length=9; x", "two\nlines", "a b%20[ü]"])
def test_files_of_any_name_are_listed_with_size_and_time(spark, tmp_path, name):
    folder = tmp_path / "in[1]" / "a=1; length=3;"
    folder.mkdir(parents=True)
    for file in (name, "other", "_hidden", ".hidden"):
        (folder / file).write_text("seven b")
    (folder / "empty").touch()

    paths = [folder / name, folder / "other"]
    expected = {f"file:{path}": (7, path.stat().st_mtime_ns // 1_000_000) for path in paths}
    assert files_below(spark, [str(tmp_path / "in[1]")]) == expected
    assert files_below(spark, [str(tmp_path / "absent")]) == {}
