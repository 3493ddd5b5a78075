"""Tables at a version, which is a snapshot of Iceberg or a version of Delta, and its publication.

xorack reads a table at the version that it has when it is opened, so that all statements about it
concern the same rows. Decisions are functions of values. The rest is SQL that Iceberg and Delta
document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException

from xorack.core.errors import ArgumentError, StateError
from xorack.spark.messages import one_line, readable
from xorack.spark.storage import Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAIN = "main"
_OWN = "xorack_"
"""The beginning of the name of a branch that `publish` makes; the snapshot's id follows."""
_ATTEMPTS = 5
_WORDS = {"iceberg": "snapshot", "delta": "version"}
_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
"""A part of a table's name."""
_REFERENCE = re.compile(r"`?(branch|tag|snapshot_id)_([^`]+)`?")
"""The last part of a name that selects a branch, a tag or a snapshot of an Iceberg table."""


@dataclass(frozen=True)
class Snapshot:
    """A table at a version.

    Attributes:
        name: The name that the user gave, such as ``cat.db.bills.branch_audit``.
        table: This name without the branch or tag.
        identity: The table's name with its catalog, as the catalog has it.
        provider: ``iceberg`` or ``delta``.
        version: The id of a snapshot, or the number of a version.
        branch: The name of a branch or tag; None for Delta, or a given snapshot.
    """

    name: str
    table: str
    identity: str
    provider: str
    version: int
    branch: str | None = None

    @property
    def words(self) -> str:
        """The table and its version, for messages."""
        return f"{self.name} at {_WORDS[self.provider]} {self.version}"


class Publication(Enum):
    """The relation of a proved snapshot to ``main``, the branch that readers see."""

    PUBLISHED = "main is the snapshot, or a descendant of it"
    POSSIBLE = "the snapshot is a descendant of main"
    DIVERGED = "neither is a descendant of the other"


def publication(version: int, main: int | None, parents: Mapping[int, int | None]) -> Publication:
    """Return the relation of a snapshot to the head of main.

    `parents` has the parent of each snapshot. A table has no main before the first commit to it.
    """
    if main is not None and version in _lineage(main, parents):
        return Publication.PUBLISHED
    if main is None or main in _lineage(version, parents):
        return Publication.POSSIBLE
    return Publication.DIVERGED


def left_over(
    version: int, references: Mapping[str, int], parents: Mapping[int, int | None]
) -> list[str]:
    """Return the branches that `publish` made for this snapshot and for snapshots of main."""
    published = {version, *_lineage(references.get(_MAIN), parents)}
    return [n for n, head in references.items() if n.startswith(_OWN) and head in published]


def _lineage(version: int | None, parents: Mapping[int, int | None]) -> Iterator[int]:
    """Yield a snapshot and its ancestors, until an ancestor has expired."""
    while version is not None:
        yield version
        version = parents.get(version)


def split_reference(name: str, identity: str) -> tuple[str, str, str]:
    """Return a table's name, and the kind and the name of the reference that follows it.

    Both are empty if the catalog knows a table with the entire name.
    """
    *parts, last = _PART.findall(name)
    selected = _REFERENCE.fullmatch(last)
    if selected is None or not parts or identity.rpartition(".")[2] == last.strip("`"):
        return name, "", ""
    return ".".join(parts), selected[1], selected[2]


def pinned(spark: SparkSession, output: Any) -> Any:
    """Return the current version of a table, given by its name or by a frame that is the table.

    Return other outputs unchanged: paths, views, and tables without versions.
    """
    name = output if isinstance(output, str) else _name_of(output)
    if name is None or "/" in name:
        return output
    return current(spark, name) or output


def _name_of(frame: Any) -> str | None:
    """Return the table's name if a frame is a table, as `spark.table` returns it, or None."""
    if hasattr(frame, "_jdf"):
        plan = frame._jdf.queryExecution().logical()
        if plan.getClass().getSimpleName() != "UnresolvedRelation" or plan.isStreaming():
            return None
        return None if plan.options().asCaseSensitiveMap() else str(plan.tableName())
    if not hasattr(frame, "_plan"):
        return None
    read = frame._plan.to_proto(frame.sparkSession.client).root.read
    table = read.named_table
    return None if read.is_streaming or table.options else table.unparsed_identifier or None


def current(spark: SparkSession, name: str) -> Snapshot | None:
    """Return the current version of a table or a branch, or None if it has no versions."""
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except Exception:  # noqa: BLE001 - Java raises any error; reading the table raises the reason
        return None
    names = [row["col_name"] for row in rows]
    details = {row["col_name"]: row["data_type"] for row in rows[_start_of_details(names) :]}
    provider, identity = details.get("Provider", "").lower(), details.get("Name", name)
    if provider == "delta":
        [last] = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()
        return Snapshot(name, name, identity, provider, last["version"])
    if provider != "iceberg":
        return None
    table, kind, reference = split_reference(name, identity)
    _check_session(spark, details, table)
    if kind == "snapshot_id":
        return Snapshot(name, table, identity, provider, int(reference))
    branch = reference or _MAIN
    version = _references(spark, table).get(branch)
    if version is None:  # the table is empty, or has no such branch: reading it raises the reason
        return None
    return Snapshot(name, table, identity, provider, version, branch)


def _start_of_details(names: list[str]) -> int:
    """Return the index at which the columns of a described table end."""
    return names.index("# Detailed Table Information") if names.count("") else len(names)


def _check_session(spark: SparkSession, details: Mapping[str, str], table: str) -> None:
    """Check that Iceberg reads snapshots in this session, or raise `ArgumentError`."""
    branch = spark.conf.get("spark.wap.branch", None)
    if branch and "write.wap.enabled=true" in details.get("Table Properties", ""):
        problem = (
            f"spark.wap.branch is {branch}: with it, Iceberg cannot read snapshots of {table}; "
            f"unset it after the write, and pass {table}.branch_{branch}"
        )
        raise ArgumentError("written", problem=problem)


def _references(spark: SparkSession, table: str) -> dict[str, int]:
    """Return the current snapshots of branches and tags, from the catalog."""
    spark.catalog.refreshTable(table)  # Iceberg caches tables for 30 s, and they may change
    return dict(spark.table(f"{table}.refs").select("name", "snapshot_id").collect())


def started(header: Mapping[str, Any]) -> Snapshot | None:
    """Return the table in the record of a start, at the version that was started, or None."""
    return Snapshot(**header["snapshot"]) if header.get("snapshot") else None


def at_start(spark: SparkSession, header: Mapping[str, Any], source: Any) -> Snapshot | None:
    """Return the version that was started, if the source is that table and has it still."""
    before, now = started(header), pinned(spark, source)
    if before is None or not isinstance(now, Snapshot) or before.identity != now.identity:
        return None
    with suppress(Exception):  # the version may have expired
        read(spark, before)
        return before
    return None


def read(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Return the rows of a table at its version."""
    version = f"VERSION AS OF {snapshot.version}"
    return spark.sql(f"SELECT * FROM {snapshot.table} {version}")  # noqa: S608 - a table's name


def stored(spark: SparkSession, snapshot: Snapshot) -> Stored:
    """Return a table's version for the report; for Iceberg also its files and its commit."""
    nothing = Stored(snapshot.name, 0, 0, version=snapshot.version)
    if snapshot.provider != "iceberg":
        return nothing
    commits = spark.table(f"{snapshot.table}.snapshots").where(f"snapshot_id = {snapshot.version}")
    facts = commits.selectExpr("unix_millis(committed_at) AS time", "summary").first()
    if facts is None:
        return nothing
    at = datetime.fromtimestamp(facts["time"] // 1000, timezone.utc)
    files, size = (int(facts["summary"].get(f"total-{x}", 0)) for x in ("data-files", "files-size"))
    return Stored(snapshot.name, files, size, at, at, snapshot.version)


def check_unchanged(spark: SparkSession, snapshot: Snapshot) -> None:
    """Check that a table or a branch still has the version that was read, or raise `StateError`."""
    now = current(spark, snapshot.name)
    if now != snapshot:
        raise StateError(
            f"the output changed while finish read it: {snapshot.words} was read, and now it is at "
            f"{'none' if now is None else now.version}; repeat the call when no job writes there"
        )


def to_publish(spark: SparkSession, written: Any, allow_missing: bool) -> Snapshot:
    """Return the branch to publish, or raise `ArgumentError`."""
    if allow_missing:
        problem = "True and allow_missing=True: only an output that has all units is published"
        raise ArgumentError("publish", problem=problem)
    branch = pinned(spark, written)
    if isinstance(branch, Snapshot) and branch.branch not in (None, _MAIN):
        return branch
    name = branch.name if isinstance(branch, Snapshot) else written
    if isinstance(branch, str) and "/" not in branch:
        with readable("written", f"{branch!r} cannot be read"):
            _ = spark.table(branch).schema
    passed = repr(name) if isinstance(name, str) else "a list, a frame or nothing"
    problem = (
        "True needs one branch of an Iceberg table as the output, such as "
        f"'cat.db.bills.branch_audit', not {passed}: only a branch is hidden from readers of main"
    )
    raise ArgumentError("publish", problem=problem)


def publish(spark: SparkSession, snapshot: Snapshot, proof: str) -> None:
    """Fast-forward main to exactly this proved snapshot, or raise `StateError`.

    Iceberg fast-forwards to the head of a branch, and other jobs may write to the branch that was
    proved. So this function makes a branch of its own. If the process dies, the branch stays until
    the next call that publishes drops it.
    """
    if proof != "written":
        problem = (
            f"True needs the columns of evidence, or the column of with_unit, in {snapshot.name}: "
            "without them, its rows may be of another run"
        )
        raise ArgumentError("publish", problem=problem)
    table, failure = snapshot.table, ""
    for _ in range(_ATTEMPTS):
        try:
            references, parents = _references(spark, table), _parents(spark, table)
        except Exception as error:  # noqa: BLE001 - another job may have dropped the table
            failure = one_line(error)
            continue
        main = references.get(_MAIN)
        state = publication(snapshot.version, main, parents)
        if state is not Publication.POSSIBLE:
            for name in left_over(snapshot.version, references, parents):
                with suppress(Exception):  # a branch that stays is harmless
                    spark.sql(f"ALTER TABLE {table} DROP BRANCH IF EXISTS {name}")
        if state is Publication.PUBLISHED:
            return
        if state is Publication.DIVERGED:
            raise StateError(
                f"nothing was published or acked: main of {table} has moved to snapshot {main}, "
                f"which {snapshot.words} does not follow; make the branch again from main (ALTER "
                f"TABLE {table} CREATE OR REPLACE BRANCH), write to it, and repeat the call"
            )
        try:
            _fast_forward(spark, snapshot)
        except ParseException:
            problem = "needs Iceberg's SQL extensions: set spark.sql.extensions"
            raise ArgumentError("publish", problem=problem) from None
        except Exception as error:  # noqa: BLE001 - Java may raise any error
            failure = one_line(error)
    raise StateError(
        f"nothing was acked: main of {table} could not be fast-forwarded to {snapshot.words} "
        f"({failure}); repeat the call"
    )


def _fast_forward(spark: SparkSession, snapshot: Snapshot) -> None:
    """Fast-forward main to a branch that is made at a snapshot."""
    table, own = snapshot.table, f"{_OWN}{snapshot.version}"
    version = f"AS OF VERSION {snapshot.version}"
    spark.sql(f"ALTER TABLE {table} CREATE OR REPLACE BRANCH {own} {version}")
    target = f"table => '{table}', branch => '{_MAIN}', to => '{own}'"
    spark.sql(f"CALL {snapshot.identity.partition('.')[0]}.system.fast_forward({target})")


def _parents(spark: SparkSession, table: str) -> dict[int, int | None]:
    return dict(spark.table(f"{table}.snapshots").select("snapshot_id", "parent_id").collect())
