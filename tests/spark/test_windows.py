"""Windows over a log: what a user's stream and batch jobs send, from open to the acks."""

from __future__ import annotations

import json
from shutil import rmtree

import pytest

from tests.spark.acker import Acker
from tests.spark.conftest import EACH_SESSION
from tests.spark.orders import as_set
from xorack.core.partition_names import partition_names
from xorack.errors import ArgumentError, ColumnsError, OutputDiffersError, StateError
from xorack.spark import Tracking, storage
from xorack.spark.storage import read_texts, write_text

SCHEMA = "topic string, partition int, offset long, amount long"


class Log:
    """A log of one topic, the stream that sums it up, and the acker that hears of it."""

    def __init__(self, run):
        self.run, self.acker = run, Acker()

    @property
    def tracking(self):
        return Tracking(self.run.spark, self.run.queue.queue_url, "r", f"{self.run.root}/records")

    def windows(self, name="orders", **options):
        columns = {"partition": ["topic", "partition"], "position": "offset"}
        return self.tracking.windows(name, **columns, **options)

    def frame(self, *ranges):
        """Return rows of partitions at ranges of offsets, or at listed ones."""
        rows = [
            ("t", p, n, n)
            for p, *ends in ranges
            for n in (range(*ends) if len(ends) == 2 else ends[0])
        ]
        return self.run.spark.createDataFrame(rows, SCHEMA)

    def batch(self, number, *ranges, windows=None, lose=None, **options):
        """Run a batch: write its sums, then finish; return the requests that it sent."""
        windows, rows = windows or self.windows(), self.frame(*ranges)
        written = rows.where(lose) if lose else rows
        out = self.bill(windows, written, f"{windows.name}/{number}")
        try:
            return windows.batch(number).finish(out, source=rows, **options)
        finally:
            self.hear()

    def bill(self, windows, rows, name):
        grouped = rows.transform(windows.with_unit).groupBy()
        return self.run.write(grouped.agg(*windows.evidence()), f"out/{name}")

    def open(self, name, *args, windows=None, **options):
        try:
            return (windows or self.windows()).open(name, *args, **options)
        finally:
            self.hear()

    def hear(self):
        self.sent = self.run.sent()
        self.acker.apply(self.sent)

    @property
    def statuses(self):
        return {tag: chain.status for tag, chain in self.acker.chains.items()}


@pytest.fixture
def log(run):
    return Log(run)


@EACH_SESSION
@pytest.mark.each_version
def test_a_day(log):
    """Windows before and after their rows, a late partition, an empty one, repetitions."""
    log.open("h14", {"t": {"0": 5, "1": 3, "2": 0}})
    report = log.batch(0, (0, 0, 4), (1, 0, 3))
    assert (report.proof, report.chains, report.units) == ("written", 1, 7)
    assert log.statuses == {"r/orders/h14": "open"}
    status = log.windows().status("h14")
    assert (status.complete, status.lagging) == (False, {"t/0": (4, 5)})
    chain = log.acker.chains["r/orders/h14"]
    names = partition_names(chain.tag, {"ranges": status.window.digest, "partitions": ["t/0-2"]})
    assert {names[id] for id in log.acker.outstanding()[chain.tag]} == {"t/0"}

    log.batch(1, (0, 4, 8), (1, 3, 4), (3, 0, 2))
    sent = as_set(log.sent)
    assert log.statuses == {"r/orders/h14": "acked"}
    log.batch(1, (0, 4, 8), (1, 3, 4), (3, 0, 2))
    assert as_set(log.sent) == sent
    # After its rows: they have passed, but for one.
    assert log.open("h15", {"t": {0: 8, 1: 4, 2: 0, 3: 3}}).lagging == {"t/3": (2, 3)}
    log.batch(2, (3, 2, 3))
    assert log.statuses == dict.fromkeys(["r/orders/h14", "r/orders/h15"], "acked")
    assert len(log.acker.bus.events) == 2


def test_rows_that_are_lost_are_noted_and_not_proved(log):
    log.open("h15", {"t": {"0": 9}})
    log.open("h16", {"t": {"0": 20}})
    with pytest.raises(OutputDiffersError):
        log.batch(0, (0, 0, 6), lose="offset <> 4")
    notes = {tag: chain.note for tag, chain in log.acker.chains.items()}
    assert "batch 0 of stream lost 1 row: t/0/4" in notes["r/orders/h15"]
    assert notes["r/orders/h16"] is None
    with pytest.raises(OutputDiffersError):
        log.batch(0, (0, 0, 60), lose="offset < 57")
    note = json.loads(log.acker.chains["r/orders/h15"].note)
    assert note["text"] == "batch 0 of stream lost at least 3 rows"
    assert log.windows().status("h15").lagging == {"t/0": (0, 9)}
    log.batch(0, (0, 0, 6))
    # What was lost is there: `xorack wait --window` no longer says that rows are missing.
    note = json.loads(log.acker.chains["r/orders/h15"].note)
    assert note["text"] == "batch 0 of stream did not write exactly its rows; a rerun did"
    assert note["missing_count"] is None
    # Nothing shows that a batch without offsets has read position 6.
    log.batch(1, (0, [7, 8]))
    assert log.windows().status("h15").lagging == {"t/0": (6, 9)}


@pytest.mark.slow
def test_a_batch_job_and_two_streams(log):
    orders = log.windows()
    log.open("2026-09-14T14", {"t": {"0": 4}}, starts={"t": {"0": 2}})
    rows = log.frame((0, 2, 4))
    out = log.bill(orders, rows, "job")
    job = orders.job("2026-09-14T14")
    for ranges, problem in [
        ([(0, 3, 5)], "t/0 has 2 rows at the positions 3 to 4 in this batch"),
        ([], "the batch has no row at the 2 positions that it covers: is the path wrong"),
        ([(0, 2, 4), (7, 0, 1)], "rows of t/7, a partition that is not in its offsets"),
    ]:
        wrong = log.frame(*ranges)
        with pytest.raises(StateError, match=problem):
            job.finish(log.bill(orders, wrong, "wrong"), source=wrong)
    for given in (rows, log.run.write(rows, "out/plain")):
        with pytest.raises(ArgumentError, match="written: the frame was only read, expected the o"):
            job.finish(given, source=rows)
    assert orders.status("2026-09-14T14").lagging == {"t/0": (2, 4)}
    job.finish(out, source=rows)
    log.hear()
    assert log.statuses == {"r/orders/2026-09-14T14": "acked"}
    with pytest.raises(StateError, match="positions 3 to 3 of t/0 are proved twice, because ano"):
        log.batch(0, (0, 3, 6))
    log.batch(0, (0, 4, 6), (1, 0, 1))
    again = log.frame((0, 6, 8))
    orders.batch(0, stream="b").finish(log.bill(orders, again, "b"), source=again)
    assert log.open("2026-09-14T15", {"t": {"0": 8, "1": 1}}).complete
    assert orders.status("2026-09-14T14").others == ("t/1",)


def checkpoint_without_json(log):
    """Return the folder of a checkpoint whose offsets are no JSON."""
    offsets = log.run.root / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "1").write_text("v1\n{}\n{0: 5}\n")
    return str(offsets.parent)


REFUSED = [
    (
        lambda log: log.batch(1, (0, [5]), checkpoint=checkpoint_without_json(log)),
        ArgumentError,
        r"checkpoint: /.*/offsets/1 has the line '\{0: 5\}', expected JSON",
    ),
    (lambda log: log.open("a/b", {"t": {"0": 1}}), ArgumentError, "name: 'a/b', expected the"),
    (lambda log: log.open("a\ud800", {"t": {"0": 9, "1": 9}}), ArgumentError, "name: 'a"),
    (lambda log: log.open("a" * 1024, {"t": {"0": 9, "1": 9}}), ArgumentError, "tag: 'r/orders/a"),
    (lambda log: log.windows().batch(0, stream=""), ArgumentError, "stream: '', expected the na"),
    (lambda log: log.batch(1, (0, [5]), checkpoint="/no"), ArgumentError, "with a file offsets/1"),
    (lambda log: log.open("w", {"t": {"0": 1}}), ArgumentError, "ends: no end of t/1, a par"),
    (lambda log: log.open("w", {"t": 1}), ArgumentError, r"ends: \('t', 1\), expected topic, p"),
    (lambda log: log.open("w", {}), ArgumentError, "ends: none, expected an end for each p"),
    (lambda log: log.open("h14", {"t": {"0": 4, "1": 3}}), StateError, "'h14' is open with t/0"),
    (lambda log: log.open("w", {"t": {"0": 9, "1": 2}}), ArgumentError, "'w' ends before wind"),
    (lambda log: log.open("w", {"t": {"0": 9, "1": 9}}, {"t": {"0": 10}}), ArgumentError, "start"),
    (lambda log: log.windows().status("w"), StateError, "window 'w' of 'orders' is not open"),
    (lambda log: log.windows().finish("/", source="/"), ArgumentError, "batch_id: None, expect"),
    (lambda log: log.windows(gaps="no"), ArgumentError, "gaps: 'no', expected count, error"),
    (lambda log: log.batch(0, (0, 0, 4)), StateError, "has proved batch 0, and this is batch 0"),
    (lambda log: log.batch(1, (0, [5, 7]), windows=log.windows(gaps="error")), StateError, "1 of "),
    (lambda log: log.batch(1, (0, [7, 7])), StateError, "t/0 has 2 rows at the positions 7 to 7"),
    (lambda log: log.open("w", {"t": {0: 5, "0": 3}}), ArgumentError, "ends: t/0 is there twice"),
]


def test_what_is_refused(log):
    log.open("h14", {"t": {"0": 5, "1": 3}})
    log.batch(0, (0, 0, 5), (1, 0, 1))
    for call, error, text in REFUSED:
        log.sent = []
        with pytest.raises(error, match=text):
            call(log)
        assert log.sent == []
    assert log.open("w", {"t": {"0": 5, "1": 3}}).window.starts == {"t/0": 5, "t/1": 3}


def test_a_position_that_is_no_integer_is_refused(log):
    windows = log.tracking.windows("orders", partition="shard", position="position")
    rows = log.run.spark.sql("SELECT 's' AS shard, '7' AS position, 1 AS amount")
    with pytest.raises(ColumnsError, match="column position is string, expected an integer"):
        windows.batch(0).finish(log.bill(windows, rows, "no"), source=rows)


def test_a_record_that_is_damaged_is_an_error(log):
    log.open("h14", {"t": {"0": 5}})
    (text,) = (log.run.root / "records").rglob("window=h14/part-*")
    text.unlink()
    text.with_name("part-other").write_text('{"name": "h14"}\n')
    with pytest.raises(StateError, match=r"window=\*: a record is corrupt"):
        log.windows().status("h14")


@pytest.mark.parametrize("is_local", [True, False])
def test_a_text_is_read_once_unless_it_was_written_again(spark, tmp_path, monkeypatch, is_local):
    read, real = [], storage._lines
    monkeypatch.setattr(storage, "_lines", lambda *given: read.append(given) or real(*given))
    monkeypatch.setattr(storage, "_LOCAL", "file:" if is_local else "never:")
    for number, text in enumerate(("mine", "hers"), 1):
        write_text(spark, f"{tmp_path}/slot=0", text)
        assert [read_texts(spark, f"{tmp_path}/slot=*") for _ in range(3)] == [[text]] * 3
        assert len(read) == number


def test_a_record_that_is_replaced_while_others_are_read_is_not_passed_over(
    spark, tmp_path, monkeypatch
):
    """Two batches are proved during one look: it sees the last one before, or a later one."""
    real, gone = storage._lines, []
    write_text(spark, f"{tmp_path}/slot=0", "batch 4")
    write_text(spark, f"{tmp_path}/slot=1", "batch 5")

    def lines(spark, path):
        if "slot=1" in path and not gone:
            write_text(spark, f"{tmp_path}/slot=0", "batch 6")
            gone.append(rmtree(tmp_path / "slot=1"))  # batch 7 is about to be written
        return real(spark, path)

    monkeypatch.setattr(storage, "_lines", lines)
    assert read_texts(spark, f"{tmp_path}/slot=*") == ["batch 6"]
