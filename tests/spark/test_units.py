"""Units and tags of Spark columns equal those of plain Python."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import tag_text
from xorack import unit_id
from xorack.errors import ColumnsError
from xorack.spark.units import (
    chain_columns,
    column_named,
    quoted,
    unit_column,
    with_tag,
)

pytestmark = pytest.mark.each_version
UTC = timezone.utc
ROWS = 400
NINES = 10**38 - 1
ANY_CHARACTER = ((0x20, 0x7E), (0xA0, 0xD7FF), (0x10000, 0x10FFFF))


def text(rng: random.Random) -> str:
    return "".join(chr(rng.randint(*rng.choice(ANY_CHARACTER))) for _ in range(rng.randrange(12)))


def moment(rng: random.Random) -> datetime:
    return datetime.min + timedelta(rng.randrange(3652059), 0, rng.randrange(86400 * 10**6))


def decimals(scale: int):
    """Decimals of at most 38 digits, most of them with zeros at the end."""

    def draw(rng: random.Random) -> Decimal:
        digits = rng.randrange(10 ** rng.randrange(1, 39))
        zeros = 10 ** rng.randrange(1, 20)
        number = rng.choice((-1, 1)) * (digits - digits % zeros or digits)
        return Decimal((number < 0, [int(digit) for digit in str(abs(number))], -scale))

    return draw


def integers(bits: int):
    edge = 2 ** (bits - 1)
    return [0, 1, -1, edge - 1, -edge], lambda rng: rng.randrange(-edge, edge)


TIMES = [
    datetime.min,
    datetime.max,
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1582, 10, 10, 1, 2, 3, 4),
    datetime(2026, 3, 8, 2, 30, 0, 123456),  # no such time in New York
    datetime(2026, 11, 1, 1, 30),  # comes twice in New York
]
# By column: the type, values that are always among the rows, and how to draw others.
COLUMNS = {
    "tiny": ("tinyint", *integers(8)),
    "_hash": ("smallint", *integers(16)),
    "count": ("int", *integers(32)),
    "a.b": ("bigint", *integers(64)),
    "back`tick": ("boolean", [True, False], lambda rng: rng.random() < 0.5),
    "": ("binary", [b"", bytes(range(70))], lambda rng: rng.randbytes(rng.randrange(70))),
    "a day": (
        "date",
        [date.min, date.max, date(1969, 12, 31), date(1970, 1, 1), date(1582, 10, 10)],
        lambda rng: moment(rng).date(),
    ),
    "unit": (
        "timestamp",
        [time.replace(tzinfo=UTC) for time in TIMES]
        + [datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=-9.5)))],
        lambda rng: moment(rng).replace(tzinfo=UTC),
    ),
    "wall": ("timestamp_ntz", TIMES, moment),
    "c0": ("decimal(9,0)", [Decimal(100)], lambda rng: Decimal(rng.randrange(-9999, 9999))),
    "*": (
        "decimal(38,18)",
        [Decimal(n).scaleb(-18) for n in (0, 1, -1, 5 * 10**17)],
        decimals(18),
    ),
    "d": ("decimal(38,38)", [Decimal((0, (1,), -38)), Decimal((1, (9,) * 38, -38))], decimals(38)),
    "D2": ("decimal(38,0)", [Decimal(NINES), Decimal(-NINES), Decimal(0)], decimals(0)),
    "naïve 日": ("string", ["", "%", "a/b%2F/", "\U0001f600", "1.50"], text),
}
NAMES = list(COLUMNS)
TAGGED = [f"c{i}" for i in range(len(NAMES))]


@pytest.fixture(scope="module")
def values():
    rng = random.Random(13)
    columns = [
        edges + [draw(rng) for _ in range(ROWS - len(edges))] for _, edges, draw in COLUMNS.values()
    ]
    return list(zip(*columns, strict=True))


@pytest.fixture(scope="module")
def frame(spark, values):
    schema = ", ".join(f"x{i} {kind}" for i, (kind, *_) in enumerate(COLUMNS.values()))
    return spark.createDataFrame(values, schema).toDF(*NAMES).cache()


@pytest.fixture
def _compiled(configure):
    """Have Spark compile expressions, as it does by default."""
    configure("spark.sql.codegen.wholeStage", "true")
    configure("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize(
    ("zone", "ansi", "names"),
    [
        ("UTC", "true", NAMES),
        pytest.param("America/New_York", "false", NAMES[::-1], marks=pytest.mark.slow),
    ],
    ids=["forward", "backward"],
)
def test_units_and_tags_are_those_of_python(frame, values, configure, zone, ansi, names):
    configure("spark.sql.session.timeZone", zone)
    configure("spark.sql.ansi.enabled", ansi)
    chosen = [[name] for name in NAMES] + [names]
    units = [unit_column(frame, "lines", some).alias(f"u{i}") for i, some in enumerate(chosen)]
    tagged = with_tag(frame.select(*units, *chain_columns(frame, names)), "run/label/", TAGGED)
    types = [kind for _, kind in frame.select(*map(quoted, names)).dtypes]
    assert [kind for _, kind in tagged.select(*TAGGED).dtypes] == types
    got = tagged.select("tag", *(f"u{i}" for i in range(len(chosen)))).collect()
    for row, (tag, *ids) in zip(values, got, strict=True):
        by_name = dict(zip(NAMES, row, strict=True))
        for some, unit in zip(chosen, ids, strict=True):
            assert unit % 2**64 == unit_id("lines", *(by_name[name] for name in some)), some
        assert tag == tag_text("run/label/", *(by_name[name] for name in names))


@pytest.mark.parametrize("policy", ["LEGACY", pytest.param("CORRECTED", marks=pytest.mark.slow)])
def test_tags_of_dates_are_the_same_in_each_calendar(spark, configure, policy):
    """With LEGACY, a cast writes a date as Java's Julian calendar does, which lacks ten days."""
    configure("spark.sql.legacy.timeParserPolicy", policy)
    days = {
        (-3, 5, 1): "-0003-05-01",
        (0, 1, 1): "0000-01-01",
        (1582, 10, 10): "1582-10-10",
        (9999, 12, 31): "9999-12-31",
        (12000, 1, 1): "+12000-01-01",
    }
    dates = spark.createDataFrame([*days], "y int, m int, d int").selectExpr(
        "make_date(y, m, d) AS c0",
        "timestamp_seconds(unix_date(make_date(y, m, d)) * 86400L) AS c1",
    )
    tags = {tag for (tag,) in with_tag(dates, "p/", ["c0", "c1"]).select("tag").collect()}
    assert tags == {f"p/{day}/{day}T00:00:00.000000Z" for day in days.values()}


def test_long_tags_are_cut(spark):
    prefix = "2026-01-31/file/"
    room = 1024 - len(prefix)
    long = ["a" * room, "a" * (room + 1), "é" * (room // 2 + 1), "\U0001f600" * 300 + "x"]
    chains = spark.createDataFrame([(value,) for value in long], "c0 string")
    tags = [tag for (tag,) in with_tag(chains, prefix, ["c0"]).select("tag").collect()]
    assert tags == [tag_text(prefix, value) for value in long]
    assert tags[0] == prefix + long[0]
    for value, tag in zip(long[1:], tags[1:], strict=True):
        assert tag == f"{(prefix + value)[:240]}...{unit_id(prefix + value):016x}"
        assert len(tag.encode()) <= 1024


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("6100", "contains NUL"),
        ("ff", "is not valid UTF-8"),
        ("efbfbdeda080", "is not valid UTF-8"),
    ],
)
def test_no_tag_holds_what_is_no_text(spark, value, problem):
    chains = spark.sql(f"SELECT string(X'{value}') AS c0")
    with pytest.raises(Exception, match=f"xorack: a value of a chain column {problem}"):
        with_tag(chains, "p/", ["c0"]).collect()


@pytest.mark.parametrize("name", ["a.b", "naïve 日", "d", "*", "wall"])
def test_a_null_names_the_column(spark, name):
    null = F.lit(None).cast(COLUMNS[name][0])
    empty = spark.range(1).select(F.lit(1).alias("count"), null.alias(name))
    for role, column in (
        ("unit", unit_column(empty, "s", ["count", name])),
        ("chain", *chain_columns(empty, [name])),
    ):
        with pytest.raises(Exception, match="is null") as caught:
            empty.select(column).collect()
        assert f"xorack: {role} column {name} is null; a {role} needs a value" in str(caught.value)


def test_no_columns_are_unsuitable(spark):
    for role, select in (("unit", lambda f, n: unit_column(f, "s", n)), ("chain", chain_columns)):
        with pytest.raises(ColumnsError, match=f"a {role} needs at least one column"):
            select(spark.range(1), [])


def test_a_missing_or_ambiguous_column_is_named(spark):
    left, right = spark.range(1).selectExpr("id", "1 as `a.b`"), spark.range(1)
    with pytest.raises(ColumnsError, match=r"column a is not in the frame, which has 'id', 'a\.b'"):
        column_named(left, "a")
    spaced = spark.range(1).selectExpr("id as `order `")
    with pytest.raises(ColumnsError, match="column order is not in the frame, which has 'order '"):
        column_named(spaced, "order")
    both = left.join(right, left.id == right.id)
    with pytest.raises(ColumnsError, match="column id is 2 times in the frame, which has 'id'"):
        unit_column(both, "s", ["a.b", "id"])
