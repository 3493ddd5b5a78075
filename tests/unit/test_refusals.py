"""A refusal concerns a single chain: it delays no other chain, and never pages."""

import json
from dataclasses import replace

import pytest

from tests.support.chains import make_chain
from tests.support.slow import BAD, START, SlowFunctions


@pytest.fixture
def functions(monkeypatch):
    functions = SlowFunctions(monkeypatch)
    functions.clock.spend(1_000)
    return functions


def ended(functions, tag, *, token=None, event=True):
    """Store a chain that ended long ago, with pending deliveries."""
    resume = None if token is None else json.dumps({"step_functions": token})
    functions.table.chains[tag] = make_chain(
        tag,
        b"\0",
        "acked",
        1,
        1,
        2,
        START,
        created_at=START,
        ended_at=1,
        due_at=1,
        resume=resume,
        resume_pending=token is not None,
        event_pending=event,
    )


def late(functions, tag, *, token=None):
    """Store an open chain whose deadline has just passed."""
    now = int((START + functions.clock.now) * 1000)
    resume = None if token is None else json.dumps({"step_functions": token})
    functions.table.chains[tag] = make_chain(
        tag, b"\1", "open", 1, 0, 2, now, created_at=now, deadline=now, due_at=now, resume=resume
    )


def published(functions):
    return [json.loads(detail)["tag"] for detail in functions.bus.events]


@pytest.mark.parametrize("calls", [True, False])
def test_refused_events_end_no_sweep_and_open_no_breaker(functions, calls):
    """The bus refuses entries, or the calls with them."""
    functions.bus.refuses_calls = calls
    functions.bus.seconds = 0.02 if calls else 0.08
    tags = [f"{BAD}{number}" for number in range(60)]
    for tag in tags:
        ended(functions, tag)
    late(functions, "innocent")
    for minute, figures in functions.sweep_each_minute(3):
        assert figures["SweepsIncomplete"] == 0
        # An operator is alerted once.
        assert figures["DeliveriesRefused"] == (0 if minute else 60)
    assert published(functions) == ["innocent"]
    assert functions.breakers["event"].allows()
    chains = functions.table.chains
    assert all(chains[tag].reports.event_pending and chains[tag].reports.refused_at for tag in tags)
    # The bus accepts them again: each is published within an hour.
    functions.bus.refuses = lambda name: False
    for _ in functions.sweep_each_minute(60):
        pass
    assert {*published(functions)} == {*tags, "innocent"}


def test_a_slow_bus_holds_up_no_callback(functions):
    limits = functions.settings.limits._replace(resumes=frozenset({"step_functions"}))
    functions.settings = replace(functions.settings, limits=limits)
    functions.bus.seconds = 5
    for number in range(300):
        ended(functions, f"e{number}")
    ended(functions, "waits", token="waits", event=False)
    for _ in functions.sweep_each_minute(2):
        pass
    assert "waits" in functions.tasks.tasks


def test_a_token_is_gone_with_its_delivery_and_in_no_log(functions, caplog):
    caplog.set_level("DEBUG")
    secret, refused = "AQCEAAAAKgAAAAMAAAAA", f"{BAD}AQCEAAAAKgAAAAMAAAAA"
    ended(functions, "good", token=secret)
    ended(functions, "bad", token=refused)
    for _ in range(25 * 2):  # every half an hour
        functions.sweep()
        functions.clock.spend(1_800)
    good, bad = (functions.table.chains[tag] for tag in ("good", "bad"))
    assert (good.reports.resume, good.reports.resume_pending, bool(good.reports.resumed_at)) == (
        None,
        False,
        True,
    )
    assert (bad.reports.resume, bad.reports.resume_pending, bad.due_at) == (None, False, None)
    assert bad.reports.resume_failed == "AccessDeniedException"
    logged = [str(vars(record)) for record in caplog.records]
    assert any("not resumed" in line or "refused" in line for line in logged)
    assert not any(refused in line or secret in line for line in logged)
    assert [record.failures for record in caplog.records if "abandoned" in record.message] == [1]
