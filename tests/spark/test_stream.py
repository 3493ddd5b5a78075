"""The streaming word count, killed between sending and committing, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.words import counted
from tests.spark.test_pipeline import Acker
from xorack.messages import parse

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
# Runs the streams, and dies where it is told: right after a query's n-th batch was sent.
RUN = """
import os, signal, sys
from pipeline import stream
sent = {}
def send(frame, **options):
    done = send.real(frame, **options)
    step = options["step"]
    sent[step] = sent.get(step, 0) + 1
    if f"{step}:{sent[step]}" == os.environ.get("DIE_AFTER"):
        os.kill(os.getpid(), signal.SIGKILL)
    return done
send.real, stream.send = stream.send, send
sys.exit(stream.main(sys.argv[1:]))
"""


def run(queue, files, out, die_after=None):
    """Do what there is to do; returns what was sent."""
    queue.bodies.clear()
    command = [sys.executable, "-c", RUN, "--files", str(files), "--out", str(out)]
    command += ["--queue-url", queue.queue_url, "--run-id", "r", "--available-now"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DIE_AFTER": die_after or ""}
    done = subprocess.run(
        [*command, "--files-per-batch", "3"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if die_after else 0), done.stderr[-4000:]
    return list(queue.bodies)


def put(files, texts):
    for name, text in texts.items():
        (files.parent / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        (files.parent / name).rename(files / name)


def requests_of(bodies):
    return [request for body in bodies for request in parse(body).requests]


def test_every_chain_is_acked_and_none_twice(spark, queue, tmp_path):
    from pipeline.stream import counted_folder

    files, out = tmp_path / "arriving", tmp_path / "out"
    files.mkdir()
    first = {f"a{n}.txt": f"one two Two {'three ' * n}" for n in range(5)}
    later = {f"b{n}.txt": f"four FIVE {'six ' * n}" for n in range(4)} | {"wordless.txt": " \n-"}
    put(files, {**first, "bad.txt": b"caf\xe9 au lait"})
    bodies = run(queue, files, out, die_after="starts:1")
    put(files, {**later, "empty.txt": ""})  # no bytes: Spark passes over it, it gets no chain
    bodies += run(queue, files, out, die_after="counts:1")
    bodies += run(queue, files, out)
    bodies += run(queue, files, out)  # nothing new: nothing is sent

    requests = requests_of(bodies)
    distinct = {(r.tag, r.id): r for r in requests}
    assert len(requests) > len(distinct)  # both kills made a batch come again
    assert all(distinct[r.tag, r.id] == r for r in requests)
    assert Counter(r.op for r in distinct.values()) == {
        "create": len(first) + len(later) + 1,
        "fail": 1,
        "stamp": len(first) + len(later) + len(first) + len(later) - 1,
    }
    acker = Acker()
    acker.apply(bodies)
    assert acker.statuses() == {"acked": len(first) + len(later), "failed": 1}
    assert len(acker.bus.events) == len(first) + len(later) + 1
    failed = [event for event in acker.bus.events if event["status"] == "failed"]
    assert [event["tag"] for event in failed] == ["stream/bad.txt"]
    expected = sum((counted(text) for text in {**first, **later}.values()), Counter())
    rows = counted_folder(spark, str(out)).collect()
    assert Counter({row["word"]: row["count"] for row in rows}) == expected
