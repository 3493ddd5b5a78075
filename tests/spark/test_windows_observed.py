"""Windows whose batches are observed as they are written, whatever the job does."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as F

from tests.spark.orders import as_set
from tests.spark.test_windows import Log
from xorack.errors import OutputDiffersError, StateError

BATCHES = {0: {"0": 2, "1": 0}, 1: {"0": 9, "1": 6}, 2: {"0": 9, "1": 6}, 3: {"0": 12, "1": 6}}
"""Where each batch ends, as the source's offsets tell."""


class Stream(Log):
    """A stream with the offsets of `BATCHES`."""

    def __init__(self, run):
        super().__init__(run)
        offsets = run.root / "checkpoint/offsets"
        offsets.mkdir(parents=True)
        for number, ends in BATCHES.items():
            (offsets / str(number)).write_text(f"v1\n{{}}\n{json.dumps({'t': ends})}")
        self.open("h14", {"t": {"0": 8, "1": 6}})
        self.observed(0, self.frame((0, 0, 2)))
        self.reads = 0

    def rows(self, number):
        """Return the rows of a batch."""
        ends, begins = BATCHES[number], BATCHES[number - 1]
        return self.frame(*((int(p), begins[p], end) for p, end in ends.items()))

    def observed(self, number, rows, job=lambda units: units, mode="overwrite", given=None):
        """Run a batch: a job between the units and their sums, and the write."""
        orders, path = self.windows(), f"{self.run.root}/bills/{number}"
        units = job(rows.transform(orders.with_unit))
        sums = F.sum("amount").alias("amount"), *orders.evidence(units)
        bills = units.groupBy("partition").agg(*sums)
        checkpoint = f"{self.run.root}/checkpoint"
        try:
            written = orders.observe(bills, lambda frame: frame.write.mode(mode).parquet(path))
            given = rows if given is None else given
            options = {"source": given, "checkpoint": checkpoint}
            return orders.batch(number).finish(observed=written, **options)
        finally:
            self.hear()


@pytest.fixture
def stream(run, configure):
    configure("spark.sql.adaptive.enabled", "true")  # it plans away what is empty
    return Stream(run)


UNREAD = "raise_error('the rows are read') IS NULL"


@pytest.mark.each_version
def test_a_batch_that_has_all_positions_is_proved_without_a_look_at_its_rows(stream):
    rows = stream.rows(1)
    twice = rows.union(rows)
    given = {"job": lambda units: units.distinct(), "given": rows.where(UNREAD)}
    report = stream.observed(1, twice, **given)
    assert (report.proof, report.chains, report.units) == ("observed", 1, 13)
    assert stream.statuses == {"r/orders/h14": "acked"}
    sent = as_set(stream.sent)
    stream.observed(1, rows, given=rows.where(UNREAD))
    assert as_set(stream.sent) == sent


def test_a_partition_of_any_name(run):
    log = Log(run)
    windows = log.tracking.windows("orders", partition="shard", position="position")
    rows = run.spark.sql("SELECT 'a/%2F' AS shard, 7L + id AS position FROM range(3)")
    log.open("h14", {"a/%2F": 10}, {"a/%2F": 7}, windows=windows)
    written = log.bill(windows, rows, "any")
    assert windows.job("h14").finish(written, source=rows.where(UNREAD)).chains == 1


WRONG = {
    "a filter": (lambda units: units.where("offset <> 4"), "lost 2 rows: t/"),
    "rows twice": (
        lambda units: units.union(units.where("offset = 4")),
        "wrote other rows, or rows too many. ",
    ),
    "as many of another partition": (
        lambda units: units.where("partition = 0 OR offset <> 4").union(
            units.where("partition = 0 AND offset = 4")
        ),
        "lost 1 row: t/1/4",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_a_job_lost_or_doubled_is_noted_and_not_proved(stream, name):
    job, text = WRONG[name]
    with pytest.raises(OutputDiffersError):
        stream.observed(1, stream.rows(1), job)
    assert text in json.loads(stream.acker.chains["r/orders/h14"].note)["text"]
    assert stream.windows().status("h14").lagging == {"t/0": (2, 8), "t/1": (0, 6)}
    stream.observed(1, stream.rows(1))
    assert stream.statuses == {"r/orders/h14": "acked"}


def test_positions_without_rows_are_counted_by_the_rows(stream):
    """Markers, at the edges and within: the units of all positions are not the ones written."""
    stream.observed(1, stream.frame((0, [2, 3, 5]), (1, 1, 6)))
    assert stream.statuses == {"r/orders/h14": "acked"}
    assert stream.windows().status("h14").gaps == {"t/0": 4, "t/1": 1}
    note = "5 positions without a row: 4 of t/0, 1 of t/1"
    assert note in stream.acker.chains["r/orders/h14"].note


def test_a_source_that_gives_a_row_twice_in_place_of_another_is_refused(stream):
    with pytest.raises(StateError, match="as many rows as positions, but not one each"):
        stream.observed(1, stream.frame((0, 2, 9), (1, [0, 1, 1, 3, 4, 5])))
    assert stream.windows().status("h14").lagging == {"t/0": (2, 8), "t/1": (0, 6)}


@pytest.mark.each_version
def test_batches_without_rows(stream):
    """What is planned away is observed as nothing; a batch of markers alone follows on."""
    stream.observed(1, stream.rows(1))
    assert stream.observed(2, stream.rows(2)).units == 0
    assert stream.observed(3, stream.frame()).units == 0
    assert stream.open("h15", {"t": {"0": 12, "1": 6}}).gaps == {"t/0": 3}
    assert stream.statuses == dict.fromkeys(["r/orders/h14", "r/orders/h15"], "acked")


@pytest.mark.slow
def test_offsets_of_others_and_other_rows_prove_nothing(stream):
    stream.observed(1, stream.rows(1))
    with pytest.raises(StateError, match="t/0 has 7 rows at the positions 2 to 8 in this batch"):
        stream.observed(3, stream.rows(1))  # of an earlier batch
    with pytest.raises(StateError, match="positions 0 to 1 of t/0 are proved twice"):
        stream.observed(0, stream.frame((0, 0, 2)))  # a new checkpoint
    assert not stream.open("h15", {"t": {"0": 12, "1": 6}}).complete
