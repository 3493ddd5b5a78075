"""The chain of a run: each chain of its rows is a unit of it, so that a run has one event."""

from __future__ import annotations

import json
import random

import pytest

from tests.spark.acker import Acker
from tests.spark.conftest import EACH_SESSION
from tests.spark.orders import LINES, lines_of
from xorack.errors import OutputDiffersError, StateError

RUN = "2026-01-31"


def status(acker):
    return acker.all_chains[RUN].status


def event_of(acker):
    """Return the only event of the run."""
    (event,) = (event for event in acker.bus.events if event["tag"] == RUN)
    return event


def bill(run, rows, source="lines", name="billed", where="true"):
    """Write the bills of rows; return the path."""
    lines = run.spark.read.parquet(str(run.root / source))
    return run.write(run.bill(lines.where(where), rows=rows), name)


@EACH_SESSION
def test_a_run_is_acked_once_after_all_of_its_chains(run):
    """Repeated calls send copies. tests/unit/test_run_chain.py delivers them in any order."""
    path = run.write_lines()
    known = run.spark.createDataFrame([(90, None)], "order int, failed string")
    run.rows.start(path, chains=known)  # order 90 has no rows
    run.rows.start(path, chains=known)
    billed = bill(run, run.rows)
    for _ in range(2):
        run.rows.finish(billed)
    event = event_of(Acker(run.sent()))
    assert event["children"] == {"acked": 7, "failed": 0, "failed_tags": []}
    assert event["note"]["text"] == "lines: 154 units in 6 chains finished; proof: written"


def test_the_run_stays_open_with_a_failed_chain_and_names_it(run):
    run.options["timeout"] = 60
    run.write_lines()
    run.rows.start(str(run.root / "lines"))
    lost = run.write(run.bill(run.read().where("order <> 3"), "order"), "billed")
    with pytest.raises(OutputDiffersError):
        run.rows.finish(lost)
    acker = Acker(run.sent())
    assert (status(acker), acker.statuses()["acked"]) == ("open", 5)
    acker.sweep(60)
    assert status(acker) == "open"
    acker.sweep(361)
    event = event_of(acker)
    assert (event["status"], event["reason"]) == ("failed", "timed out")
    assert event["children"] == {"acked": 5, "failed": 1, "failed_tags": [f"{RUN}/order/3"]}
    assert event["note"]["text"].startswith("149 of 154 units of 'lines' are in")


def test_several_names_are_units_of_one_run(run):
    """A name that starts when all others are finished needs a run that is kept open."""
    path = run.write_lines()
    rows = [run.tracking.rows(n, chain="order", unit=["order", "line"], label=n) for n in "ab"]
    for each in rows:
        each.start(path)
    for each in rows:
        each.finish(bill(run, each))
    acker = Acker(run.sent())
    assert (status(acker), acker.statuses()) == ("acked", {"acked": 12})
    # A row name may be used again under another label, so the error lists it, too.
    closed = r"^run '2026-01-31' is closed: its rows named a, b are f"
    for name in "ca":
        late = run.tracking.rows(name, chain="order", unit=["order", "line"], label="c")
        with pytest.raises(StateError, match=closed):
            late.start(path)
    rows[0].start(path)  # a repetition is none
    acker.apply(run.sent())
    assert len(acker.bus.events) == 13


def test_a_run_that_is_kept_open_ends_by_close(run):
    run.options["keep_open"] = True
    acker = Acker()
    for number in range(2):
        batch = lines_of(run.spark, [k for k in LINES if k[0] % 2 == number]).persist()
        rows = run.rows.batch(number)
        for _ in range(1 + number):  # Spark may repeat a batch
            rows.start(batch)
            sums = run.write(run.bill(batch), f"billed {number}")
            rows.finish(sums, source=batch)
        acker.apply(run.sent())
        assert (status(acker), acker.statuses()["open"]) == ("open", 0)
    for _ in range(2):
        run.tracking.close()
        acker.apply(run.sent())
    assert event_of(acker)["children"]["acked"] == 6
    empty = run.again(run_id="empty")
    empty.tracking.close()
    acker.apply(run.sent())
    assert acker.all_chains["empty"].status == "acked"


def test_batches_of_a_run_that_is_not_kept_open_have_no_chain_of_the_run(run):
    batch = lines_of(run.spark).persist()
    run.rows.batch(0).start(batch)
    assert RUN not in Acker(run.sent()).all_chains


def test_windows_of_a_run_that_is_kept_open(run):
    run.options["keep_open"] = True
    log = run.tracking.windows("log", partition="order", position="line")
    for _ in range(2):
        log.open("1", {"1": 5})
    acker = Acker(run.sent())
    assert (status(acker), acker.all_chains[RUN].counts.started) == ("open", 2)
    run.tracking.close()
    acker.apply(run.sent())
    assert (status(acker), acker.chains[f"{RUN}/log/1"].status) == ("open", "open")
    rows = run.spark.range(5).selectExpr("'1' AS order", "id AS line")
    sums = rows.transform(log.with_unit).groupBy().agg(*log.evidence())
    log.batch(0).finish(run.write(sums, "sums"), source=rows)
    acker.apply(run.sent())
    assert event_of(acker)["children"] == {"acked": 1, "failed": 0, "failed_tags": []}


def test_rows_that_advance_starts_keep_the_run_open(run):
    """Both names have the same chains, so the run counts each chain once."""
    lines, parcels = (
        run.tracking.rows(name, chain="order", unit=["order", "line"])
        for name in ("lines", "parcels")
    )
    lines.start(run.write_lines())
    packed = run.write(run.bill(run.read(), "order", "line", rows=lines), "packed")
    for _ in range(2):
        lines.advance(parcels, packed)
    started = run.sent()
    shipped = run.write(run.bill(run.read("packed"), "line", rows=parcels), "shipped")
    parcels.finish(shipped)
    ended, draw = run.sent(), random.Random(4)
    for _ in range(20):
        acker = Acker(draw.sample(started, len(started)))
        assert (status(acker), acker.statuses()) == ("open", {"open": 6})
        acker.apply(draw.sample(ended, len(ended)))
        assert event_of(acker)["children"] == {"acked": 6, "failed": 0, "failed_tags": []}
        acker = Acker()
        for body in draw.sample(started + ended, len(started + ended)):
            acker.apply([body])
            if any(event["tag"] == RUN for event in acker.bus.events):
                assert acker.statuses() == {"acked": 6}
        assert status(acker) == "acked"


def test_an_empty_run_is_acked(run):
    run.rows.start(run.write_lines([]))
    acker = Acker(run.sent())
    assert status(acker) == "open"
    run.rows.finish(bill(run, run.rows))
    acker.apply(run.sent())
    assert event_of(acker)["status"] == "acked"


def test_the_callback_and_the_parent_of_a_run(run):
    """A job that is retried brings another token of the task that waits."""
    parent = {"v": 1, "unit": f"{5:016x}", "tags": ["week"], "kind": "plain"}
    run.write_lines()
    for token in ("token 1", "token 2"):
        again = run.again(options={"resume": {"step_functions": token}, "parent": parent})
        again.rows.start(str(run.root / "lines"))
    (first, second) = (
        request
        for body in run.sent()
        for request in json.loads(body)["requests"]
        if (request["op"], request["tag"]) == ("create", RUN)
    )
    assert first.pop("resume") != second.pop("resume")
    assert first == second
    assert first["parents"] == [{"unit": f"{5:016x}", "tags": ["week"], "kind": "plain"}]
    assert "token 2" not in repr(again.tracking)
