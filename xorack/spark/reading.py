"""Options with which Spark skips rows without an error. xorack refuses them.

Without this check, both jobs would miss the same rows, and their chains would be acked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from xorack.core.errors import ArgumentError

_HARMLESS = "false"
SKIPPING = (
    ("ignoreCorruptFiles", "spark.sql.files.ignoreCorruptFiles", _HARMLESS),
    ("ignoreMissingFiles", "spark.sql.files.ignoreMissingFiles", _HARMLESS),
    ("ignoreInvalidPartitionPaths", "spark.sql.files.ignoreInvalidPartitionPaths", _HARMLESS),
    ("", "spark.files.ignoreCorruptFiles", _HARMLESS),  # of Hive's tables
    ("", "spark.files.ignoreMissingFiles", _HARMLESS),
    ("", "spark.sql.hive.verifyPartitionPath", _HARMLESS),
    ("", "spark.sql.files.ignoredPathSegmentRegex", r"\^\[\._\]"),
    ("mode", "", "(?!dropmalformed$).*"),  # CSV, JSON, XML
    ("badRecordsPath", "", ""),  # Databricks
    ("failOnDataLoss", "", "true"),  # Kafka
)
"""Readers' options and the session's settings with which Spark may skip rows. They are harmless if
their value, in lower case, matches the pattern."""
READ_ALL = {option: "false" for option, _, _ in SKIPPING if option.startswith("ignore")}
"""Options for reading a path or a table by its name. They override the session's settings."""


def check_reading(frame: Any, argument: str) -> None:
    """Check that Spark skips no rows of a frame, or raise `ArgumentError`.

    For a frame that hides its source, such as a micro-batch or a cache, check only the settings.
    """
    conf = frame.sparkSession.conf
    settings = {setting: conf.get(setting, None) for _, setting, _ in SKIPPING if setting}
    for options in options_of(frame):
        lowered = {name.lower(): value for name, value in options.items()}
        for option, setting, harmless in SKIPPING:
            value = lowered.get(option.lower(), settings.get(setting))
            if value and not re.fullmatch(harmless, value.lower()):
                name = option if option.lower() in lowered else setting
                problem = f"{name} is {value}: Spark may skip rows without an error; remove it"
                raise ArgumentError(argument, problem=problem)


def options_of(frame: Any) -> Iterator[Mapping[str, str]]:
    """Yield the options of each source of a frame; empty options for a source without options."""
    if not hasattr(frame, "_jdf"):
        yield from [*_options_in(frame._plan.to_proto(frame.sparkSession.client))] or [{}]
        return
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    for leaf in map(leaves.apply, range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        source = leaf.relation() if kind == "LogicalRelation" else leaf
        if kind == "DataSourceV2Relation":
            yield dict(source.options().asCaseSensitiveMap())
        elif kind == "StreamingRelation":
            yield _pairs_in(leaf.dataSource().options())
        elif source.getClass().getSimpleName() == "HadoopFsRelation":
            yield _pairs_in(source.options())
        else:
            yield {}


def _pairs_in(options: Any) -> dict[str, str]:
    """Return the options in a map of Scala."""
    texts = options.mkString("\n").splitlines()
    return dict(text.split(" -> ", 1) for text in texts if " -> " in text)


def _options_in(message: Any) -> Iterator[Mapping[str, str]]:
    """Yield the options of the sources in a plan of Spark Connect."""
    for field, value in message.ListFields():
        if field.name in ("data_source", "named_table"):
            paths = [("path", path) for path in getattr(value, "paths", ())]
            yield {**value.options, **dict(paths)}
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if hasattr(value, "extend") else [value]:
                yield from _options_in(part)
