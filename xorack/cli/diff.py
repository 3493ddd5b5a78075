"""The command `xorack diff`."""

from __future__ import annotations

import csv
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

import click

from xorack.cli import screen
from xorack.cli.diff_output import Result, print_json_result, print_result
from xorack.cli.diff_progress import Progress
from xorack.cli.options import json_option, text_option
from xorack.core.errors import ArgumentError, XorAckError
from xorack.ops.text import printable
from xorack.spark.session import bytes_in, open_session

__all__ = ["diff"]

_Command = Callable[..., Any]
_FORMATS = ("parquet", "csv", "json")


class _Trouble(click.ClickException):
    """A failure. Its exit status is not 1, which means that the inputs differ."""

    exit_code = 2


def _split(value: str) -> list[str]:
    """Split at commas, as in CSV: a name with a comma or blanks at its ends is in quotes."""
    try:
        parts = next(csv.reader([value], skipinitialspace=True), [])
    except csv.Error:  # a line break
        return []
    return parts if '"' in value else [part.strip() for part in parts]


def _names(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    names = _split(value)
    if not all(names) or not names:
        raise click.BadParameter(f"{value!r}, expected names of columns, separated by commas")
    return names


def _tolerance(
    _: click.Context, __: click.Parameter, value: str | None
) -> float | dict[str, float] | None:
    """Parse a number, or a number for each column."""
    if value is None:
        return None
    try:
        if "=" not in value:
            return float(value)
        pairs = [part.rpartition("=") for part in _split(value) or [""]]
        return {name: float(number) for name, _, number in pairs}
    except ValueError:
        raise click.BadParameter(
            f"{value!r}, expected a number, or for example price=0.01,weight=1e-6"
        ) from None


def _columns(name: str, help_text: str, **options: Any) -> Callable[[_Command], _Command]:
    return click.option(name, metavar="COLUMNS", callback=_names, help=help_text, **options)


@click.command(
    epilog="""Example: xorack diff orders.csv copy.csv --key order,line

Exit status: 0 if both are equal; 1 if they differ; 2 for an error.""",
)
@click.argument("left")
@click.argument("right")
@_columns("--key", "The columns that say which rows belong together: order,line.", required=True)
@_columns("--values", "The columns to compare.  [default: all that both sides have]")
@_columns("--ignore", "Columns to leave out.")
@_columns("--text", "Columns of CSV and JSON whose values are text: 1.10 is not 1.1.")
@text_option("--where", metavar="SQL", help="Only rows that meet this condition, on both sides.")
@click.option(
    "--tolerance",
    metavar="NUMBER",
    callback=_tolerance,
    help="The largest difference of equal numbers with fractions: 0.01, or price=0.01,weight=1e-6.",
)
@click.option(
    "--format",
    type=click.Choice(_FORMATS),
    help="The format of files whose names do not tell.",
)
@text_option("--delimiter", default=",", help="What separates the fields of CSV.")
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000),
    default=10,
    help="Maximum number of rows to print of each kind.",
)
@json_option
@text_option("--out", metavar="FOLDER", help="Write all rows that differ to a new folder.")
@text_option("--remote", metavar="URL", help="Use a Spark Connect server: sc://host:15002.")
@click.option("--verbose", is_flag=True, help="Show Spark's log and whole errors.")
def diff(left: str, right: str, as_json: bool, **options: Any) -> int:
    """Find the rows that differ between two datasets.

    They are missing, extra or changed: the same key with other values.

    LEFT and RIGHT are files or folders of Parquet, CSV or JSON, patterns in quotes, URIs such as
    s3a://bucket/folder, or names of catalog tables. A name without a / is a table's unless there is
    such a file. Their formats may differ.

    Reads both sides once, CSV twice and JSON three times, then the rows that may differ once or
    twice more. Runs Spark in this process, or where spark-submit, SPARK_REMOTE or SPARK_HOME say.
    """
    with _one_line(verbose=options["verbose"]):
        result = _compare(left, right, options)
    for remark in result.remarks:
        screen.say(f"note: {printable(remark)}", error=True)
    if as_json:
        print_json_result(left, right, result)
    else:
        print_result(result, options["key"])
    return int(not result.summary["equal"])


def _compare(left: str, right: str, options: dict[str, Any]) -> Result:
    """Start Spark, compare, and fetch and write what differs."""
    from xorack.spark import diff as compare
    from xorack.spark._diff.inputs import ReadOptions, open_inputs
    from xorack.spark._diff.outputs import check_empty, write_frames

    with Progress() as progress:
        progress.phase("starting Spark")
        how = {"remote": options["remote"], "verbose": options["verbose"]}
        session = open_session("xorack diff", input_bytes=bytes_in(left, right), **how)
        with session as (spark, is_local):
            progress.watch(spark)
            out = options["out"]
            if out is not None:
                check_empty(spark, out, is_local=is_local)
            progress.phase(f"reading {left} and {right}")
            given = {name: options[name] for name in ("format", "delimiter", "where")}
            read = ReadOptions(**given, text=options["text"] or (), is_local=is_local)
            *frames, remarks = open_inputs(spark, left, right, read)
            progress.phase("comparing")
            given = {name: options[name] for name in ("key", "values", "tolerance")}
            with compare(*frames, **given, ignore=options["ignore"] or ()) as difference:
                progress.phase("fetching the first rows")
                rows = difference.first(options["limit"]) if options["limit"] else {}
                if out is not None:
                    progress.phase(f"writing {out}")
                    write_frames(difference, out, is_local=is_local)
                return Result(difference.summary(), str(difference), rows, remarks, out)


@contextmanager
def _one_line(*, verbose: bool) -> Iterator[None]:
    """Turn any error into one line and the exit status 2."""
    try:
        with _quiet_pyspark(verbose=verbose):
            yield
    except ImportError as error:
        has_spark = find_spec("pyspark") is not None  # else Spark Connect lacks a package
        package = "pyspark[connect]" if has_spark else "xorack[spark]"
        raise _Trouble(f'{str(error).rstrip(".")}: pip install "{package}"') from error
    except Exception as error:
        if verbose:
            traceback.print_exception(error)
        if isinstance(error, XorAckError):
            text = " ".join(str(error).split())
            if isinstance(error, ArgumentError):  # the library's option where is --where here
                text = f"--{text}"
        else:
            from xorack.spark.messages import one_line

            text = one_line(error)
        raise _Trouble(text) from error


@contextmanager
def _quiet_pyspark(*, verbose: bool) -> Iterator[None]:
    """Do not let PySpark and py4j print errors, with stack traces, before they raise them."""
    if verbose:
        yield
        return
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    with suppress(ImportError):  # PySpark 4
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        yield
    finally:
        root.removeHandler(handler)
