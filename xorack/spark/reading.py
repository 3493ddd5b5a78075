"""What Spark leaves out in silence as it reads: refused, as both jobs would miss the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xorack.core.errors import ArgumentError

__all__ = ["READ_ALL", "SKIPPING", "check_reading"]


class _Skip(NamedTuple):
    """A reader's option, or a setting of the session, that lets Spark leave rows out.

    Its `harmless` values, in lower case, leave nothing out; if `skipping` are given, all but these.
    """

    option: str
    setting: str = ""
    harmless: tuple[str, ...] = ("false",)
    skipping: tuple[str, ...] = ()


SKIPPING = (
    _Skip("ignoreCorruptFiles", "spark.sql.files.ignoreCorruptFiles"),
    _Skip("ignoreMissingFiles", "spark.sql.files.ignoreMissingFiles"),
    _Skip("ignoreInvalidPartitionPaths", "spark.sql.files.ignoreInvalidPartitionPaths"),
    _Skip("", "spark.files.ignoreCorruptFiles"),  # of Hive's tables
    _Skip("", "spark.files.ignoreMissingFiles"),
    _Skip("", "spark.sql.hive.verifyPartitionPath"),
    _Skip("", "spark.sql.files.ignoredPathSegmentRegex", ("^[._]",)),
    _Skip("mode", skipping=("dropmalformed",)),  # CSV, JSON, XML
    _Skip("badRecordsPath", harmless=()),  # Databricks
    _Skip("failOnDataLoss", harmless=("true",)),  # Kafka
)
READ_ALL = {skip.option: "false" for skip in SKIPPING if skip.option.startswith("ignore")}
"""Options of what is read by a path or a table's name: they overrule the session's settings."""


def check_reading(frame: Any, argument: str) -> None:
    """Check that Spark leaves nothing out of a frame, or raise `ArgumentError`.

    What hides its source, as a micro-batch or a cache does, is judged by the settings alone.
    """
    conf = frame.sparkSession.conf
    settings = {skip.setting: conf.get(skip.setting, None) for skip in SKIPPING if skip.setting}
    for options in _options(frame):
        given = {name.lower(): value for name, value in options.items()}
        for skip in SKIPPING:
            value = given.get(skip.option.lower(), settings.get(skip.setting))
            text = (value or "").lower()
            if value and (text in skip.skipping if skip.skipping else text not in skip.harmless):
                name = skip.option if skip.option.lower() in given else skip.setting
                problem = f"{name} is {value}: Spark may leave rows out of what is read, in silence"
                raise ArgumentError(argument, problem=f"{problem}; read it without")


def _options(frame: Any) -> Iterator[Mapping[str, str]]:
    """Yield the options of each source of a frame, and none for what has no options."""
    if not hasattr(frame, "_jdf"):
        yield from [*_options_in(frame._plan.to_proto(frame.sparkSession.client))] or [{}]
        return
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    for leaf in map(leaves.apply, range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        source = leaf.relation() if kind == "LogicalRelation" else leaf
        if kind == "DataSourceV2Relation":
            yield dict(source.options().asCaseSensitiveMap())
        elif source.getClass().getSimpleName() == "HadoopFsRelation":
            texts = source.options().mkString("\n").splitlines()
            yield dict(text.split(" -> ", 1) for text in texts if " -> " in text)
        else:
            yield {}


def _options_in(message: Any) -> Iterator[Mapping[str, str]]:
    """Yield the options of the sources in a plan of Spark Connect."""
    for field, value in message.ListFields():
        if field.name in ("data_source", "named_table"):
            yield dict(value.options)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if hasattr(value, "extend") else [value]:
                yield from _options_in(part)
