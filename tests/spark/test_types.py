"""Keys of another type or form, and evidence in wrong columns: one sentence, and no names."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import Run, lines_of, requests_in
from tests.support.queue_server import QueueServer
from xorack.errors import OutputDiffersError


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("run"))
        columns = {
            "long": "bigint(line)",
            "code": "lpad(line, 4, '0')",
            "padded": "rpad(line, 5, ' ')",
            "upper": "upper(sku)",
            "price": "line + 0.50BD",
            "day": "date_add(date'2026-01-31', line)",
            "at": "timestamp'2026-01-31 12:00:00' + make_dt_interval(0, 0, line)",
            "even": "line % 2 = 0",
        }
        rows = lines_of(spark).where("order > 3")
        rows = rows.withColumns({name: F.expr(sql) for name, sql in columns.items()})
        run.write(rows, "lines")
        yield run


def lines(run, *unit):
    """Start the lines under these unit columns; return them."""
    rows = run.tracking.rows(
        "lines", chain="order", unit=["order", "line", *unit], label=f"of {'+'.join(unit)}"
    )
    rows.start(str(run.root / "lines"))
    run.sent()
    return rows


def operations(run):
    """Return the operations of what was sent: notes say on each chain what the error says."""
    return {request.op for request in requests_in(run.sent())}


def changed(name, sql):
    return lambda frame: frame.withColumn(name, F.expr(sql))


IN = "in what was started and"
KEYS = {
    "text for a number": ("line", changed("line", "string(line)"), f"line is int {IN} string in"),
    "a decimal for a long": (
        "long",
        changed("long", "decimal(long)"),
        f"is bigint {IN} decimal(10",
    ),
    "a number for text": ("code", changed("code", "int(code)"), f"code is string {IN} int in"),
    "a date for a timestamp": ("at", changed("at", "date(at)"), f"at is timestamp {IN} date in"),
    "leading zeros": ("code", changed("code", "string(int(code))"), f"{IN} without leading zeros"),
    "padding": ("padded", changed("padded", "rtrim(padded)"), f"{IN} without spaces at its end in"),
    "case": ("upper", changed("upper", "lower(upper)"), f"upper is string {IN} in lower case in"),
    "all decimals": ("price", changed("price", "string(price)"), f"price is decimal(13,2) {IN} "),
    "text for a date": ("day", changed("day", "string(day)"), f"day is date {IN} "),
    "another time zone": (
        "at",
        changed("at", "from_utc_timestamp(at, 'Europe/Helsinki')"),
        f"at is timestamp {IN} in another time zone",
    ),
    "all as text": (
        "long",
        lambda frame: frame.withColumns(
            {k: F.col(k).cast("string") for k in ("order", "line", "long")}
        ),
        "",
    ),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("leading zeros", "keys"),
        *(
            pytest.param(name, "keys", marks=pytest.mark.slow)
            for name in sorted(KEYS.keys() - {"leading zeros"})
        ),
        *(
            pytest.param(name, "evidence", marks=pytest.mark.slow)
            for name in ("padding", "all as text")
        ),
    ],
)
@pytest.mark.each_version
def test_keys_of_another_type_or_form(run, name, kind, configure):
    configure("spark.sql.session.timeZone", "Europe/Helsinki")
    column, job, sentence = KEYS[name]
    rows = lines(run, *{column} - {"line"})
    output = job(run.read())
    output = output if kind == "keys" else run.bill(output, rows=rows)
    with pytest.raises(OutputDiffersError) as caught:
        rows.finish(run.write(output, kind))
    head, reason = str(caught.value).splitlines()
    assert "stay open" in head
    assert re.search(r"\.withColumn\(", reason)
    assert sentence in reason or kind == "evidence"  # which does not tell the type
    assert re.search(rf"\b{column}\b.* is ", reason)
    assert (caught.value.missing, operations(run)) == ([], {"note"})


@pytest.mark.slow
def test_a_partition_column_whose_type_spark_infers(run):
    """Casting the column before the write would not help."""
    rows = lines(run, "code")
    path = str(run.root / "by_code")
    run.read().write.mode("overwrite").partitionBy("code").parquet(path)
    with pytest.raises(OutputDiffersError) as caught:
        rows.finish(path)
    assert "code is string in what was started and int in the output: Spark infers" in str(
        caught.value
    )
    schema = run.read().schema
    assert rows.finish(run.spark.read.schema(schema).parquet(path)).units == run.read().count()


@pytest.mark.parametrize(
    "change", ["code = '0009'", pytest.param("order = 6 AND line = 9", marks=pytest.mark.slow)]
)
def test_a_source_that_is_not_what_was_started_is_no_other_form(run, change):
    """Forms that change no value, such as `trim`, make such a source equal to the output."""
    code = run.tracking.rows("lines", chain="code", unit=["code", "order"], label=change)
    rows = run.read().withColumns({"order": F.col("order").cast("string")})
    code.start(run.write(rows, "texts"))
    other = F.expr(f"if({change}, '999', code)")
    source = run.write(rows.withColumn("code", other), "others")
    billed = run.read("others").transform(code.with_unit).groupBy("code").agg(*code.evidence())
    with pytest.raises(OutputDiffersError, match="the source is not what was started") as caught:
        code.finish(run.write(billed, "billed"), source=source)
    assert "makes both equal" not in str(caught.value)


@pytest.mark.slow
def test_equal_values_of_other_types_are_equal(run):
    rows = lines(run, "price", "even")
    types = {"line": "bigint", "order": "smallint", "price": "decimal(20,4)", "even": "int"}
    output = run.read().withColumns({k: F.col(k).cast(to) for k, to in types.items()})
    assert rows.finish(run.write(output, "equal")).proof == "written"


EVIDENCE = {
    "swapped": (
        lambda bills, x, n, s: (
            bills.withColumnRenamed(n, "t").withColumnRenamed(s, n).withColumnRenamed("t", s)
        ),
        "the columns of the evidence are swapped: xorack_lines_xor has the XOR, xorack_lines_sum "
        "the count and xorack_lines_count the sum; an INSERT takes columns by position",
    ),
    "swapped, and a row is lost": (
        lambda bills, x, n, s: (
            bills.where("sku <> 'sku 0'")
            .withColumnRenamed(n, "t")
            .withColumnsRenamed({s: n, "t": s})
        ),
        ", not a count: are columns swapped?",
    ),
    "a sum of XORs": (
        lambda bills, x, n, s: bills.agg(
            F.expr(f"bigint(sum({x} % 1000)) AS {x}"), F.sum(n).alias(n), F.sum(s).alias(s)
        ),
        "xorack_lines_xor was summed: use bit_xor for it, as rows.evidence",
    ),
    "some rows have none": (
        lambda bills, *names: bills.withColumns(
            {name: F.when(F.col("sku") > "sku 1", F.col(name)) for name in names}
        ),
        "2 rows of the output have no evidence: did another job write them?",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_in_wrong_columns(run, name):
    rows = lines(run)
    change, sentence = EVIDENCE[name]
    bills = change(run.bill(run.read(), rows=rows), *rows.evidence_names)
    with pytest.raises(OutputDiffersError, match=re.escape(sentence)):
        rows.finish(run.write(bills, "bills"))
    assert operations(run) == {"note"}
