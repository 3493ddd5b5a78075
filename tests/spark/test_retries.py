"""Killed executors, speculative copies, repeated jobs: the table afterwards.

The job is `tests.support.cluster_job`; the Lambda consumer's handler applies its messages. If a
retry counted twice, chains would be acked too early, or never.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.spark.helpers import ROOT, apply, chains_in, duplicates_in, totals
from tests.support.cluster_job import CHAINS, UNITS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TAGS = {f"r/file/{chain}" for chain in range(CHAINS)}
MISHAPS = {
    f"{step}-{what}" for step in ("start", "finish") for what in ("killed-after-sending", "hung")
}
HANGS = {name for name in MISHAPS if name.endswith("-hung")}


def run_job(queue, folder, spared=frozenset(), master="local-cluster[2,1,1024]"):
    """Run the job; return the messages that start units and those that finish them."""
    queue.bodies.clear()
    folder.mkdir(exist_ok=True)
    for mishap in spared:
        (folder / mishap).touch()
    (folder / "started").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.support.cluster_job", master, queue.queue_url]
    log = folder / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen([*command, str(folder)], cwd=ROOT, stdout=out, stderr=out) as process,
    ):
        starts = None
        while process.poll() is None:
            if starts is None and (folder / "started").exists():
                starts = len(queue.bodies)
            time.sleep(0.02)
    assert process.returncode == 0, log.read_text()[-6000:]
    assert {path.name for path in folder.iterdir()} >= MISHAPS
    return queue.bodies[:starts], queue.bodies[starts:]


def rows_in(aws):
    """Return the totals of the chains of rows: the tag of the run's chain has no slash."""
    return {tag: total for tag, total in totals(chains_in(aws)).items() if "/" in tag}


def check(functions, starts, ends):
    """Apply all messages: chains stay open after all starts, and are acked after all ends."""
    aws = functions.aws
    apply(functions, starts)
    assert rows_in(aws) == dict.fromkeys(TAGS, ("open", UNITS, 0))
    apply(functions, ends)
    assert rows_in(aws) == dict.fromkeys(TAGS, ("acked", UNITS, UNITS))
    assert functions.events().keys() == {"r", *TAGS}
    apply(functions, starts + ends)
    assert rows_in(aws) == dict.fromkeys(TAGS, ("acked", UNITS, UNITS))
    assert aws.events() == []
    assert aws.dead_letters() == []


def test_killed_executors_and_a_repeated_job(functions, queue, tmp_path):
    starts, ends = run_job(queue, tmp_path / "run", HANGS)
    assert duplicates_in(starts) > 0
    assert duplicates_in(ends) > 0
    again = run_job(queue, tmp_path / "run", MISHAPS)
    # Starts of both runs first: if they counted twice, they would cancel out.
    assert duplicates_in(starts + again[0]) >= CHAINS
    check(functions, starts + again[0], ends + again[1])
