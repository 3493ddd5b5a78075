"""Which frames a failing finish asks: those that evidence was given since the last job ended."""

from __future__ import annotations

from types import SimpleNamespace

from xorack.spark.evidence import forget, job_ends, remember, remembered


def test_the_frames_of_the_last_job():
    rows = SimpleNamespace(tracking=SimpleNamespace(records="here"), salt="run/name")
    other = SimpleNamespace(tracking=SimpleNamespace(records="there"), salt="run/name")
    first, second, third = object(), object(), object()
    remember(rows, first)
    remember(rows, second)
    remember(other, third)
    assert remembered(rows) == [second, first]
    job_ends(rows)
    assert remembered(rows) == [second, first]  # finish and audit may be called again
    remember(rows, third)
    assert remembered(rows) == [third]
    remember(rows, None)  # of the next output, nobody knows the rows
    assert remembered(rows) == []
    remember(rows, first)
    assert remembered(rows) == [first]
    forget(rows)
    assert (remembered(rows), remembered(other)) == ([], [third])
    forget(other)
