"""A failing finish asks only the frames that got evidence since the last job ended."""

from __future__ import annotations

from xorack.spark.jobs import MAX_FRAMES, JobFrames


def test_the_frames_of_the_last_job():
    jobs, other = JobFrames(), JobFrames()
    first, second, third = object(), object(), object()
    jobs.remember("rows", first)
    jobs.remember("rows", second)
    jobs.remember("rows", first)
    other.remember("rows", third)
    assert jobs.frames("rows") == (first, second)
    assert jobs.seconds("rows") is None
    jobs.end("rows")
    assert jobs.frames("rows") == (first, second)  # finish and audit may be called again
    assert jobs.seconds("rows") >= 0
    jobs.remember("rows", third)
    assert jobs.frames("rows") == (third,)
    jobs.remember("rows", None)  # of the next output, nobody knows the rows
    assert jobs.frames("rows") == ()
    jobs.remember("rows", first)
    assert jobs.frames("rows") == (first,)
    jobs.forget("rows")
    assert (jobs.frames("rows"), other.frames("rows")) == ((), (third,))


def test_no_name_displaces_another():
    jobs = JobFrames()
    for number in range(10_000):
        jobs.remember(f"rows {number}", object())
    assert all(len(jobs.frames(f"rows {number}")) == 1 for number in range(10_000))
    for number in range(MAX_FRAMES + 3):
        jobs.remember("rows 0", number)
    assert jobs.frames("rows 0") == tuple(range(MAX_FRAMES + 2, 2, -1))
