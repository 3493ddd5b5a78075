"""Tables of Iceberg: read at a snapshot, and published exactly as they were proved."""

from __future__ import annotations

import operator
import re
import threading
from contextlib import contextmanager
from functools import reduce
from itertools import count
from random import Random
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import publish_bills
from examples.publish_bills import bills_of
from tests.spark.acker import Acker
from tests.spark.helpers import ROOT, block_with, code_blocks
from tests.spark.orders import LINES, SIZES, lines_of
from tests.support.iceberg import CATALOG
from tests.support.queue_server import requests_in
from xorack import unit_id
from xorack.errors import ArgumentError, OutputDiffersError, StateError
from xorack.spark import rows as calls

pytestmark = pytest.mark.each_version
GUIDE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
ALL = len(LINES)
ACKED = {"acked": len(SIZES)}


@pytest.fixture
def warehouse(run):
    """Return the names of a table of lines, of one of bills, and of its branch for the job."""
    database = f"{CATALOG}.d{uuid4().hex[:8]}"
    run.spark.sql(f"CREATE NAMESPACE {database}")
    lines_of(run.spark).writeTo(f"{database}.lines").using("iceberg").create()
    columns = ", ".join(f"{name} bigint" for name in bills(run).columns[1:])
    run.spark.sql(f"CREATE TABLE {database}.bills (sku string, {columns}) USING iceberg")
    run.spark.sql(f"ALTER TABLE {database}.bills CREATE BRANCH audit")
    return f"{database}.lines", f"{database}.bills", f"{database}.bills.branch_audit"


def bills(run, lines=None, *by):
    return run.bill(lines_of(run.spark) if lines is None else lines, *by)


def overwrite(table, frame):
    frame.writeTo(table).overwrite(F.lit(True))


def heads(spark, table):
    spark.catalog.refreshTable(table)
    return dict(spark.table(f"{table}.refs").select("name", "snapshot_id").collect())


def test_a_table_is_read_at_a_snapshot(run, warehouse):
    lines, table, branch = warehouse
    [main] = heads(run.spark, lines).values()
    report = run.rows.start(lines)
    [stored] = report.outputs
    assert (stored.folder, stored.version, stored.files) == (lines, main, 3)
    assert run.rows.record.read()[1]["snapshot"]["version"] == main
    started = run.sent()
    overwrite(branch, bills(run))
    for given in (branch, run.spark.table(branch)):
        report = run.rows.finish(given)
        assert (report.proof, report.units) == ("written", ALL)
        [stored] = report.outputs
        assert (stored.folder, stored.version) == (branch, heads(run.spark, table)["audit"])
    assert Acker([*started, *run.sent()]).statuses() == ACKED
    again = run.again(run_id="next").rows.start(run.spark.table(lines))
    assert again.outputs[0].version == main
    assert (
        run.again(run_id="last").rows.start(f"{lines}.snapshot_id_{main}").outputs[0].version
        == main
    )


def test_what_was_started_is_no_output(run, warehouse):
    run.rows.start(warehouse[0])
    with pytest.raises(
        ArgumentError, match=r"the frame reads the rows that were started, .*lines at snapshot"
    ):
        run.rows.finish(warehouse[0])


def test_a_table_that_changes_before_the_ack_is_refused(run, warehouse, monkeypatch):
    lines, table, branch = warehouse
    run.rows.start(lines)
    overwrite(branch, bills(run))
    run.sent()
    with (
        between_proof_and_check(monkeypatch, lambda: overwrite(branch, bills(run).limit(1))),
        pytest.raises(StateError, match=r"changed while finish read it: .*audit at snapshot"),
    ):
        run.rows.finish(branch)
    overwrite(branch, bills(run))
    drop = f"ALTER TABLE {table} DROP BRANCH audit"
    with (
        between_proof_and_check(monkeypatch, lambda: run.spark.sql(drop)),
        pytest.raises(StateError, match=r"changed while finish read it: .*now it is at none"),
    ):
        run.rows.finish(branch)
    assert run.sent() == []


def test_a_table_that_is_dropped_before_its_publication_is_not_acked(run, warehouse, monkeypatch):
    lines, table, branch = warehouse
    run.rows.start(lines)
    overwrite(branch, bills(run))
    run.sent()
    publish = calls.tables.publish

    def drop_and_publish(*arguments):
        run.spark.sql(f"DROP TABLE {table}")
        publish(*arguments)

    monkeypatch.setattr(calls.tables, "publish", drop_and_publish)
    with pytest.raises(StateError, match=r"^nothing was acked: main of .* cannot be found"):
        run.rows.finish(branch, publish=True)
    assert run.sent() == []


@contextmanager
def between_proof_and_check(monkeypatch, act):
    """Let another session act between the proof and the check that the output has not changed."""
    decide = calls.finishing.decide

    def decided(*arguments):
        outcome = decide(*arguments)
        act()
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(calls.finishing, "decide", decided)
        yield


def test_missing_rows_are_named_by_the_snapshot_that_was_started(run, warehouse):
    """The table has got other rows since the start."""
    lines, _, branch = warehouse
    run.rows.start(lines)
    overwrite(
        branch, bills(run, run.spark.table(lines).where("NOT (order = 6 AND line IN (7, 9))"))
    )
    run.spark.sql(f"DELETE FROM {lines} WHERE order = 2")
    with pytest.raises(OutputDiffersError) as caught:
        run.rows.finish(branch)
    assert caught.value.missing == [(6, 7), (6, 9)]


def test_what_is_proved_is_published_before_the_ack(run, warehouse):
    lines, table, branch = warehouse
    run.rows.start(lines)
    overwrite(branch, bills(run))
    started = run.sent()
    assert run.spark.table(table).count() == 0
    report = run.rows.finish(branch, publish=True)
    now = heads(run.spark, table)
    assert now == dict.fromkeys(("main", "audit"), report.outputs[0].version)
    assert run.spark.table(table).count() == 5
    finished = run.sent()
    assert Acker([*started, *finished]).statuses() == ACKED
    # Others go on from there: what was published is acked once more.
    run.spark.sql(f"DELETE FROM {table} WHERE sku = 'sku 1'")
    run.rows.finish(branch, publish=True)
    assert {(r.tag, r.id) for r in requests_in(run.sent())} == {
        (r.tag, r.id) for r in requests_in(finished)
    }


@pytest.mark.parametrize("loss", ["job", "tolerated", "input", "input and chains"])
def test_nothing_is_published_or_acked_if_a_row_is_missing(run, warehouse, loss):
    lines, table, branch = warehouse
    run = run.again(options={"tolerated_units": 1} if loss == "tolerated" else {})
    run.rows.start(lines)
    started = run.sent()
    kept = run.spark.table(lines).where("NOT (order = 3 AND line = 2)")
    if loss.startswith("input"):
        overwrite(lines, kept.localCheckpoint())
    by = ("sku",) if loss in ("job", "input") else ("order", "sku")
    if "order" in by:
        run.spark.sql(f"ALTER TABLE {table} ADD COLUMN order int")
    overwrite(branch, bills(run, kept, *by).select(*run.spark.table(table).columns))
    before = heads(run.spark, table)
    with pytest.raises(OutputDiffersError, match="all chains stay open") as caught:
        run.rows.finish(branch, publish=True)
    if loss in ("job", "tolerated"):
        assert f"lines.audit('{branch}').missing_rows('{lines}', rows=" in str(caught.value)
    assert heads(run.spark, table) == before
    acker = Acker([*started, *run.sent()])
    assert acker.statuses() == {"open": len(SIZES)}
    assert all(chain.note for chain in acker.chains.values())


def test_the_snippet_of_the_guide(run, warehouse):
    lines, table, _ = warehouse
    run.rows.start(lines)
    snippet = block_with(code_blocks(GUIDE, "python"), "publish=True")
    names = {"spark": run.spark, "F": F, "lines": run.rows}
    exec(snippet.replace("cat.db", table.rpartition(".")[0]), names)
    assert Acker(run.sent()).statuses() == ACKED
    assert run.spark.table(table).count() == 5


def test_the_example_publishes_once_all_lines_are_there(run, warehouse, capsys):
    lines, table, _ = warehouse
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            publish_bills, "bills_of", lambda rows, *more: bills_of(rows.where("line > 1"), *more)
        )
        with pytest.raises(OutputDiffersError):
            publish_bills.main(run.tracking, lines, table)
    assert run.spark.table(table).count() == 0
    report = publish_bills.main(run.tracking, lines, table)
    assert f"154 lines are published in {table}.branch_audit, snapshot" in capsys.readouterr().out
    assert heads(run.spark, table)["main"] == report.outputs[0].version
    assert Acker(run.sent()).statuses() == ACKED


def test_main_that_has_moved_is_an_error(run, warehouse):
    lines, table, branch = warehouse
    run.rows.start(lines)
    overwrite(branch, bills(run))
    run.sent()
    overwrite(table, bills(run).limit(1))
    moved = heads(run.spark, table)
    with pytest.raises(StateError, match=f"nothing was published or acked: main of {table} has mo"):
        run.rows.finish(branch, publish=True)
    assert (heads(run.spark, table), run.sent()) == (moved, [])


def test_only_a_branch_can_be_published(run, warehouse):
    lines, table, branch = warehouse
    run.rows.start(lines)
    overwrite(branch, bills(run))
    run.spark.sql("CREATE TABLE plain USING parquet AS SELECT 1 AS a")
    path = run.write(bills(run), "bills")
    run.sent()
    for given in (table, lines, "plain", path, [branch], run.spark.table(branch).where("true")):
        with pytest.raises(
            ArgumentError, match=r"^publish: True needs one branch of an Iceberg ta"
        ):
            run.rows.finish(given, publish=True)
    missing = (
        rf"^written: '{table}.branch_no' cannot be read: Cannot use branch \(does not exist\): no$"
    )
    for publish in (True, False):
        with pytest.raises(ArgumentError, match=missing):
            run.rows.finish(f"{table}.branch_no", publish=publish)
    with pytest.raises(ArgumentError, match="only an output that has all units is published"):
        run.rows.finish(branch, publish=True, allow_missing=True)
    run.spark.sql(f"ALTER TABLE {lines} CREATE BRANCH copy")
    overwrite(f"{lines}.branch_copy", lines_of(run.spark))
    with pytest.raises(ArgumentError, match="True needs the columns of evidence"):
        run.rows.finish(f"{lines}.branch_copy", publish=True)
    assert run.sent() == []
    run.spark.sql("DROP TABLE plain")


def test_a_session_that_reads_another_branch_is_refused(run, warehouse, configure):
    lines, table, _ = warehouse
    run.rows.start(lines)
    run.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.wap.enabled'='true')")
    configure("spark.wap.branch", "audit")
    with pytest.raises(ArgumentError, match=f"unset it after the write, and pass {table}.branch_a"):
        run.rows.finish(table)


class Killed(BaseException):
    """The process ends here."""


class Process:
    """A process that dies at one of the moments between write, proof, publication and ack."""

    def __init__(self, monkeypatch, dies_at, meanwhile=None):
        self.moments, self.dies_at, self.meanwhile = count(), dies_at, meanwhile
        for place, name in (
            (calls, "send_frame"),
            (calls.finishing, "decide"),
            (calls.tables, "publish"),
            (SparkSession, "sql"),
        ):
            monkeypatch.setattr(place, name, self.called(getattr(place, name)))

    def called(self, function):
        return lambda *given, **more: self.call(function, *given, **more)

    def call(self, function, *given, **more):
        """Call a function, and die before or after it; queries change nothing."""
        if function.__name__ == "sql" and not re.match("ALTER|CALL", given[1]):
            return function(*given, **more)
        self.moment()
        if function.__name__ == "publish" and self.meanwhile is not None:
            self.meanwhile()
        result = function(*given, **more)
        self.moment()
        return result

    def moment(self):
        if next(self.moments) == self.dies_at:
            raise Killed


FEW = [keys for keys in LINES if keys[0] <= 3]
MOMENTS = 14
"""Of a call that publishes: before and after proof, publication, its three statements and the
sending, and around the write."""


class Round:
    """A run whose job is killed once, and repeated; a faulty job may come first."""

    def __init__(self, run, branch, number):
        self.random, self.number = Random(number), number
        self.run, self.branch = run.again(run_id=f"r{number}"), branch

    def job(self, moment=lambda: None, *, loses=False):
        """Write the bills of this run to the branch, and finish."""
        lines = self.run.read().withColumn("amount", F.lit(self.number))
        if loses:
            lines = lines.where("NOT (order = 3 AND line = 2)")
        moment()
        overwrite(self.branch, bills(self.run, lines))
        moment()
        self.run.rows.finish(self.branch, publish=True)

    def disturb(self):
        """Let another session write what nobody proved to the branch."""
        other = self.run.spark.newSession()
        other.sql(f"INSERT INTO {self.branch} SELECT * FROM {self.branch} LIMIT 1")

    def go(self, monkeypatch):
        """Return the acker after a kill and a repetition."""
        run = self.run
        run.rows.start(str(run.root / "lines"))
        bodies = run.sent()
        if self.random.random() < 0.1:
            with pytest.raises(OutputDiffersError):
                self.job(loses=True)
        with monkeypatch.context() as patch:
            meanwhile = self.disturb if self.random.random() < 0.3 else None
            process = Process(patch, self.number % MOMENTS, meanwhile)
            with pytest.raises(Killed):
                self.job(process.moment)
        self.job()
        return Acker([*bodies, *run.sent()])


@contextmanager
def reader(spark, table):
    """Read main beside the block; yield the amounts and the counts that were seen."""
    seen, ended, session = set(), threading.Event(), spark.newSession()

    def look():
        while not ended.is_set():
            session.catalog.refreshTable(table)
            sums = "min(amount) AS amount", "sum(xorack_lines_count) AS units"
            seen.add(tuple(session.table(table).selectExpr(*sums).first()))
            ended.wait(2)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def kill(run, warehouse, monkeypatch, numbers):
    """Kill the jobs of some runs; check what readers ever saw, and that no ack is lost."""
    (_, table, branch), spark, lost = warehouse, run.spark, []
    run.write(lines_of(spark, FEW, files=1), "lines")
    with reader(spark, table) as seen:
        for number in numbers:
            acker = Round(run, branch, number).go(monkeypatch)
            lost += [number] * (acker.statuses() != {"acked": 3})
    assert lost == []
    assert {units for _, units in seen} <= {None, len(FEW)}
    history = [row["snapshot_id"] for row in spark.table(f"{table}.history").collect()]
    assert len({*history}) >= len(numbers)
    for snapshot in {*history}:  # what main ever was
        frame = spark.sql(f"SELECT * FROM {table} VERSION AS OF {snapshot}")
        rows = frame.selectExpr(
            "sum(xorack_lines_count)",
            "bit_xor(xorack_lines_xor)",
            "min(amount / xorack_lines_count)",
        )
        units, xor, number = rows.first()
        ids = (unit_id(f"r{number:.0f}/lines", *keys) for keys in FEW)
        assert (units, xor % 2**64) == (len(FEW), reduce(operator.xor, ids)), snapshot
    assert not [name for name in heads(spark, table) if name.startswith("xorack_")]


def test_a_killed_job_publishes_nothing_unproved_and_loses_no_ack(run, warehouse, monkeypatch):
    kill(run, warehouse, monkeypatch, range(MOMENTS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_300_killed_jobs(run, warehouse, monkeypatch, part):
    kill(run, warehouse, monkeypatch, range(100 + 15 * part, 115 + 15 * part))
