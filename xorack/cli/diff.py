"""The command `xorack diff`."""

from __future__ import annotations

import csv
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from xorack.cli import screen
from xorack.cli.diff_output import Outcome, check_page, print_found, write_page
from xorack.cli.diff_tables import read_tables
from xorack.cli.options import json_option, text_option
from xorack.compare.inputs import FORMATS, ReadOptions, check_out, is_file
from xorack.compare.report import DiffReport, Result
from xorack.core.errors import ArgumentError, XorAckError
from xorack.ops.text import printable

__all__ = ["diff"]

_Command = Callable[..., Any]
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(%|rows?)?")
_ENCODINGS = ("utf-8", "utf-16", "latin-1")
_ON_SPARK = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")
"""Variables of a session of Spark that exists, which reads files, too."""
_BY_ORDER = "rows of one key are paired by their order, not by nearest values, on Spark"
_OF_RUN = ("as_json", "html", "tables", "limit", "out", "engine", "memory", "remote", "verbose")
"""Parameters that are given once for all tables of a file."""


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
) -> str | dict[str, str] | None:
    """Parse a limit, or a limit for each column."""
    from xorack.compare.columns import Limit

    if value is None:
        return None
    try:
        pairs = [part.rpartition("=") for part in _split(value) or [""]] if "=" in value else []
        for limit in [limit for *_, limit in pairs] or [value]:
            Limit.parse(limit)
    except ArgumentError:
        raise click.BadParameter(
            f"{value!r}, expected a number, or for example price=0.01,weight=0.1%,at=2s"
        ) from None
    return {name: limit for name, _, limit in pairs} if pairs else value


def _max_different(_: click.Context, __: click.Parameter, value: str) -> tuple[float, bool]:
    """Parse a number of rows, or a share of the greater side's; return whether it is a share."""
    found = _LIMIT.fullmatch(value.strip())
    if not found:
        raise click.BadParameter(f"{value!r}, expected for example 0.1% or '10 rows'")
    return float(found[1]), found[2] == "%"


def _columns(name: str, help_text: str) -> Callable[[_Command], _Command]:
    return click.option(name, metavar="COLUMNS", callback=_names, help=help_text)


def _each_side(*options: tuple[str, str, str, Any]) -> Callable[[_Command], _Command]:
    """Add an option for each side: a name, a placeholder, a type, and what it means."""

    def add(command: _Command) -> _Command:
        for name, metavar, help_text, type_ in reversed(options):
            for side in ("right", "left"):
                how = {"metavar": metavar, "help": f"{help_text}, on the {side}.", "type": type_}
                command = click.option(f"--{side}-{name}", **how)(command)
        return command

    return add


@click.command(
    epilog="""Example: xorack diff orders.csv copy.csv --key order,line

Exit status: 0 if both are equal; 1 if they differ; 2 for an error.""",
)
@click.argument("left", required=False)
@click.argument("right", required=False)
@_columns("--key", "The columns that say which rows belong together: order,line, or order=id.")
@click.option("--no-key", is_flag=True, help="Compare whole rows: they are missing or extra.")
@_columns("--values", "The columns to compare.  [default: all that both sides have]")
@_columns("--ignore", "Columns to leave out.")
@_columns("--text", "Columns of CSV and JSON whose values are text: 1.10 is not 1.1.")
@_columns("--ignore-case", "Columns whose text is compared without case; * for all.")
@_columns("--ignore-blanks", "Columns whose text is compared without outer blanks; * for all.")
@text_option("--where", metavar="SQL", help="Only rows that meet this condition, on both sides.")
@click.option(
    "--tolerance",
    metavar="LIMIT",
    callback=_tolerance,
    help="The largest difference of equal values: 0.01, 0.1% or 2s; price=0.01,at=2s; integer=1.",
)
@click.option(
    "--max-different",
    metavar="LIMIT",
    callback=_max_different,
    default="0",
    help="Exit with 0 up to so many rows that differ: 0.1%, or '10 rows'.",
)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="The format of files whose names do not tell.",
)
@text_option("--delimiter", default=",", help="What separates the fields of CSV.")
@click.option("--header/--no-header", default=True, help="Whether CSV begins with names.")
@click.option("--null", "nulls", multiple=True, metavar="WORD", help="A word of CSV that is null.")
@click.option("--encoding", type=click.Choice(_ENCODINGS), help="The encoding of CSV.")
@_each_side(
    ("sql", "SQL", "A query in place of an input", str),
    ("where", "SQL", "Only rows that meet this condition", str),
    ("encoding", "NAME", "The encoding of CSV", click.Choice(_ENCODINGS)),
)
@click.option(
    "--limit",
    type=click.IntRange(0, 999_999),  # DuckDB finds the least of fewer than a million
    default=10,
    help="Maximum number of rows to print of each kind.",
)
@json_option
@text_option("--html", metavar="FILE", help="Write a report of one page, for people.")
@text_option("--tables", metavar="FILE", help="Compare the tables that this file of YAML names.")
@text_option("--out", metavar="FOLDER", help="Write all rows that differ to a new folder.")
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), help="What compares.")
@text_option("--memory", metavar="SIZE", help="The memory of DuckDB, such as 2GB.")
@text_option("--remote", metavar="URL", help="Use a Spark Connect server: sc://host:15002.")
@click.option("--verbose", is_flag=True, help="Show Spark's log and whole errors.")
def diff(left: str | None, right: str | None, as_json: bool, **options: Any) -> int:
    """Find the rows that differ between two datasets.

    They are missing, extra or changed: the same key with other values.

    LEFT and RIGHT are files or folders of Parquet, CSV or JSON, patterns in quotes, URIs such as
    s3://bucket/folder, or names of catalog tables. A name without a / is a table's unless there is
    such a file. Their formats may differ. --left-sql and --right-sql take an input's place.

    Files are compared by DuckDB, in this process. Tables, --remote and --engine spark use Spark.
    """
    with _one_line(verbose=options["verbose"]):
        if options["html"] is not None:
            check_page(options["html"])
        jobs = _jobs(left, right, options)
        found: dict[str, Outcome] = {}
        with _Engines(jobs) as engines:
            for name, (names, given) in jobs.items():
                try:
                    with _one_line(verbose=options["verbose"]):
                        found[name] = engines.compare(name, names, given)
                except _Trouble as error:
                    if not name:
                        raise
                    found[name] = error.message
        if options["html"] is not None:
            write_page(options["html"], found)
    print_found(found, as_json=as_json)
    return max(
        2
        if isinstance(one, str)
        else int(not _is_within(one.report, *jobs[name][1]["max_different"]))
        for name, one in found.items()
    )


def _jobs(
    left: str | None, right: str | None, options: dict[str, Any]
) -> dict[str, tuple[tuple[str, str], dict[str, Any]]]:
    """Return the inputs and options of each comparison by its name, which is empty for one."""
    if options["tables"] is None:
        return {"": (_inputs(left, right, options), options)}
    context = click.get_current_context()
    for one in context.params:
        is_given = context.get_parameter_source(one) is ParameterSource.COMMANDLINE
        if is_given and one not in _OF_RUN:
            name = one.upper() if one in ("left", "right") else f"--{one.replace('_', '-')}"
            raise click.UsageError(f"{name} and --tables: the file has it, for each table")
    jobs = {}
    run = {one: options[one] for one in _OF_RUN if one in options}
    for name, given in read_tables(options["tables"], diff, _OF_RUN).items():
        own = {**given, **run}
        if run["out"] is not None:
            if "/" in name or name in (".", ".."):
                raise ArgumentError("out", problem=f"table {name}: its name is none of a folder")
            own["out"] = f"{run['out'].rstrip('/')}/{name}"
        try:
            jobs[name] = _inputs(own.pop("left"), own.pop("right"), own), own
        except click.UsageError as error:
            problem = f"{options['tables']}: table {name}: {error.message}"
            raise ArgumentError("tables", problem=problem) from error
    return jobs


def _inputs(left: str | None, right: str | None, options: dict[str, Any]) -> tuple[str, str]:
    """Check that there are a key and two inputs; return their names, of a query its option."""
    queries = [options["left_sql"], options["right_sql"]]
    given = [name for name in (left, right) if name is not None]
    if len(given) + sum(query is not None for query in queries) != 2:
        missing = "LEFT" if left is None and queries[0] is None else "RIGHT"
        raise click.UsageError(
            f"Missing argument '{missing}'." if len(given) < 2 else "a query takes an input's place"
        )
    labels = ("--left-sql", "--right-sql")
    if (options["key"] is None) != options["no_key"]:
        raise click.UsageError("Missing option '--key'." if not options["no_key"] else
                               "--key and --no-key: give one of them")  # fmt: skip
    first, second = (
        label if query is not None else given.pop(0)
        for label, query in zip(labels, queries, strict=True)
    )
    return first, second


def _is_within(report: DiffReport, limit: float, is_share: bool) -> bool:
    if is_share:
        limit *= max(report.counts.left, report.counts.right) / 100
    return report.equal or (
        0 < report.different <= limit and not report.left_only and not report.right_only
    )


def _read_options(options: dict[str, Any]) -> list[ReadOptions]:
    """Return how each side is read."""
    common = {name: options[name] for name in ("format", "delimiter", "header", "nulls")}
    return [
        ReadOptions(
            **common,
            sql=options[f"{side}_sql"],
            encoding=options[f"{side}_encoding"] or options["encoding"] or "utf-8",
            where=[one for one in (options["where"], options[f"{side}_where"]) if one],
        )
        for side in ("left", "right")
    ]


def _on_spark(names: tuple[str, str], options: dict[str, Any]) -> bool:
    """Return true if Spark compares: it was chosen, or an input is a table."""
    if options["engine"] or options["remote"]:
        return bool(options["engine"] != "duckdb")
    if any(map(os.environ.get, _ON_SPARK)):
        return True
    return not all(name.startswith("--") or is_file(name) for name in names)


class _Engines(ExitStack):
    """DuckDB, and one session of Spark for all comparisons that need it."""

    def __init__(self, jobs: Mapping[str, Any]) -> None:
        """Prepare for some comparisons."""
        super().__init__()
        self._inputs = [name for names, _ in jobs.values() for name in names]
        self._spark: Any = None

    def compare(self, name: str, names: tuple[str, str], options: dict[str, Any]) -> Result:
        """Compare on the engine that suits, and fetch and write what differs."""
        run = self._on_spark if _on_spark(names, options) else _compare_files
        console = Console(stderr=True)
        text = f"{f'{name}: ' if name else ''}comparing {names[0]} and {names[1]}"
        waiting = console.status(Text(printable(text)))
        with waiting if screen.can_redraw(console) else nullcontext():
            return run(names, options)

    def _on_spark(self, names: tuple[str, str], options: dict[str, Any]) -> Result:
        from xorack.spark import diff as compare
        from xorack.spark._diff.inputs import open_frames
        from xorack.spark._diff.outputs import check_empty, write_frames
        from xorack.spark.session import bytes_in, open_session

        for name in ("text", "ignore_case", "ignore_blanks", "memory"):
            if options[name]:
                raise ArgumentError(name.replace("_", "-"), problem="is for files, on DuckDB")
        if self._spark is None:
            how = {"remote": options["remote"], "verbose": options["verbose"]}
            session = open_session("xorack diff", input_bytes=bytes_in(*self._inputs), **how)
            self.enter_context(_quiet_pyspark(verbose=options["verbose"]))
            self._spark = self.enter_context(session)
        (spark, is_local), out = self._spark, options["out"]
        if out is not None:
            check_empty(spark, out, is_local=is_local)
        frames = open_frames(spark, names, _read_options(options), is_local=is_local)
        given = {name: options[name] for name in ("key", "values", "tolerance")}
        with compare(*frames, **given, ignore=options["ignore"] or ()) as found:
            rows = found.first(options["limit"]) if options["limit"] else {}
            why, changes = found.explain(), found.changes()
            if out is not None:
                write_frames(found, out, is_local=is_local)
            has_several = found.counts.duplicate_keys_left or found.counts.duplicate_keys_right
            remarks = [_BY_ORDER] if options["tolerance"] and has_several else []
            return Result(names, found, changes, why, rows, remarks, out)


def _compare_files(names: tuple[str, str], options: dict[str, Any]) -> Result:
    from xorack.compare.engine import diff_files
    from xorack.compare.options import CompareOptions, connect

    lists = ("ignore", "text", "ignore_case", "ignore_blanks")
    given = {name: options[name] for name in ("key", "values", "tolerance", "limit")}
    given |= {name: options[name] or () for name in lists}
    out = options["out"]
    if out is not None:
        check_out(out)
    with connect(options["memory"]) as con:
        found = diff_files(con, names, _read_options(options), CompareOptions(**given))
        rows = found.first() if options["limit"] else {}
        why, changes = found.explain(), found.changes()
        if out is not None:
            found.write(out)
        return Result(names, found, changes, why, rows, found.remarks, out)


@contextmanager
def _one_line(*, verbose: bool) -> Iterator[None]:
    """Turn any error into one line and the exit status 2."""
    try:
        yield
    except click.ClickException:
        raise
    except ImportError as error:
        text = str(error).rstrip(".")
        package = f"xorack[{'diff' if re.search('duckdb|yaml', text) else 'spark'}]"
        if package == "xorack[spark]" and find_spec("pyspark") is not None:
            package = "pyspark[connect]"  # Spark Connect lacks a package
        raise _Trouble(f'{text}: pip install "{package}"') from error
    except Exception as error:
        cause: BaseException | None = error
        while cause:  # DuckDB makes another error of Ctrl-C
            if {type(cause).__name__} & {"KeyboardInterrupt", "InterruptException"}:
                raise KeyboardInterrupt from error
            cause = cause.__cause__
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
