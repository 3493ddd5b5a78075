"""The streaming word count: killed between sending and committing, stopped, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.words import counted
from tests.spark.helpers import Acker
from tests.spark.test_retries import apply, duplicates_in, table_of, world  # noqa: F401
from tests.support.queue_server import requests_in

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
# Runs the streams; kills itself right after a query sent its n-th batch (DIE_AFTER=step:n).
RUN = """
import os, signal, sys
from collections import Counter
from pipeline import stream
real, sent = stream.send, Counter()
def send(frame, **options):
    done = real(frame, **options)
    sent[options["step"]] += 1
    if f"{options['step']}:{sent[options['step']]}" == os.environ.get("DIE_AFTER"):
        os.kill(os.getpid(), signal.SIGKILL)
    return done
stream.send = send
sys.exit(stream.main(sys.argv[1:]))
"""


def command(queue, files, out, *more, run_id="r", die_after=None):
    """Return a command line and options for `subprocess`."""
    words = [sys.executable, "-c", RUN, "--files", str(files), "--out", str(out), "--queue-url"]
    words += [queue.queue_url, "--run-id", run_id, "--files-per-batch", "3", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DIE_AFTER": die_after or ""}
    return words, {"cwd": ROOT, "env": environment, "text": True}


def run(queue, files, out, die_after=None, run_id="r"):
    """Process all files, then stop; returns the messages."""
    queue.bodies.clear()
    words, how = command(queue, files, out, "--available-now", run_id=run_id, die_after=die_after)
    done = subprocess.run(words, **how, capture_output=True, check=False)
    assert done.returncode == (-signal.SIGKILL if die_after else 0), done.stderr[-4000:]
    return list(queue.bodies)


def put(files, texts):
    for name, text in texts.items():
        (files.parent / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        (files.parent / name).rename(files / name)


def counted_in(spark, out):
    from pipeline.stream import counted_folder

    rows = counted_folder(spark, str(out)).collect()
    return Counter({row["word"]: row["count"] for row in rows})


def test_every_chain_is_acked_once_although_the_process_is_killed_twice(spark, queue, tmp_path):
    files, out = tmp_path / "arriving", tmp_path / "out"
    files.mkdir()
    first = {f"a{n}.txt": f"one two Two {'three ' * n}" for n in range(5)}
    later = {f"b{n}.txt": f"four FIVE {'six ' * n}" for n in range(4)} | {"wordless.txt": " \n-"}
    put(files, {**first, "bad.txt": b"caf\xe9 au lait"})
    bodies = run(queue, files, out, die_after="starts:1")
    put(files, {**later, "empty.txt": ""})  # Spark skips empty files: no chain
    bodies += run(queue, files, out, die_after="counts:1")
    bodies += run(queue, files, out)
    bodies += run(queue, files, out)  # nothing new: nothing is sent

    requests = requests_in(bodies)
    distinct = {(r.tag, r.id): r for r in requests}
    assert len(requests) > len(distinct)  # both kills repeated a batch
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
    assert counted_in(spark, out) == expected


@contextmanager
def running(queue, files, out, log, **how):
    """Run the streams in the background; kill them at the end."""
    words, how = command(queue, files, out, "--every", "0.2", **how)
    with (
        log.open("w") as file,
        subprocess.Popen(words, **how, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def until(process, log, holds):
    """Wait for a condition while the process runs."""
    deadline = time.monotonic() + 300
    while not holds():
        assert process.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.2)


def statuses(bodies):
    acker = Acker()
    acker.apply(list(bodies))
    return acker.statuses()


def uncommitted(out):
    """Return the batches that each query began and did not commit."""

    def batches(name, kind):
        found = (out / "checkpoints" / name / kind).iterdir()
        return {path.name for path in found if not path.name.startswith(".")}

    queries = ("words", "starts", "counts")
    return {name: batches(name, "offsets") - batches(name, "commits") for name in queries}


def test_a_stopped_or_killed_stream_continues_where_it_was(spark, queue, world, tmp_path):  # noqa: F811
    files, out, log = tmp_path / "arriving", tmp_path / "out", tmp_path / "log"
    files.mkdir()
    first = {f"a{n}.txt": f"one two {'three ' * n}" for n in range(3)}
    put(files, first)
    with running(queue, files, out, log) as process:
        until(process, log, lambda: statuses(queue.bodies) == {"acked": 3})
        # While it runs: an unreadable file, and one that is older than all others.
        put(files, {"bad.txt": b"caf\xe9 au lait"})
        (tmp_path / "old.txt").write_text("four")
        os.utime(tmp_path / "old.txt", (86_400, 86_400))
        (tmp_path / "old.txt").rename(files / "old.txt")
        until(process, log, lambda: statuses(queue.bodies) == {"acked": 4, "failed": 1})
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text()[-4000:]
    assert "batches of files, " in log.read_text()
    assert uncommitted(out) == {"words": set(), "starts": set(), "counts": set()}
    assert duplicates_in(queue.bodies) == 0

    # Another run id would give other request ids, and repeated requests would count twice.
    words, how = command(queue, files, out, run_id="another")
    rejected = subprocess.run(words, **how, capture_output=True, check=False, timeout=300)
    assert rejected.returncode == 1
    assert "is of the run 'r': give this one again as --run-id" in rejected.stderr

    # Killed right after it sent, in each query that sends; then interrupted by Ctrl-C.
    before = list(queue.bodies)
    for step, name in (("starts", "b0.txt"), ("counts", "b1.txt")):
        put(files, {name: "five Six five"})
        with running(queue, files, out, log, die_after=f"{step}:1") as process:
            assert process.wait(300) == -signal.SIGKILL, log.read_text()[-4000:]
        assert uncommitted(out)[step]
    assert len(queue.bodies) > len(before)
    with running(queue, files, out, log) as process:
        until(process, log, lambda: statuses(queue.bodies) == {"acked": 6, "failed": 1})
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0, log.read_text()[-4000:]
    assert duplicates_in(queue.bodies) > 0

    # The table, after SQS delivered everything once, and again after a second time.
    texts = first | {"old.txt": "four"} | dict.fromkeys(["b0.txt", "b1.txt"], "five Six five")
    expected = {
        f"stream/{name}": ("acked", *[str(counted(text).total() + 1)] * 2)
        for name, text in texts.items()
    }
    for delivery in range(2):
        apply(queue.bodies, delivery * len(queue.bodies))
        table = table_of(world)
        assert table.pop("stream/bad.txt")[0] == "failed"
        assert table == expected
        ended = Counter(event["detail"]["tag"] for event in world.events())
        assert ended == ({} if delivery else dict.fromkeys([*expected, "stream/bad.txt"], 1))
    assert world.dead_letters() == []
    assert counted_in(spark, out) == sum(map(counted, texts.values()), Counter())


def test_a_failing_query_stops_the_others(queue, tmp_path):
    files, out = tmp_path / "arriving", tmp_path / "out"
    files.mkdir()
    put(files, {"a.txt": "one two"})
    queue.refuse = lambda count: True
    words, how = command(queue, files, out, "--every", "0.2")
    done = subprocess.run(words, **how, capture_output=True, check=False, timeout=300)
    assert done.returncode == 1
    # Java prints warnings of its own, which differ from version to version.
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")]
    assert line.startswith(f"stream: queue {queue.queue_url}: 1 messages not sent")
    assert "not you" in line
    queue.refuse = lambda count: False
    assert statuses(run(queue, files, out)) == {"acked": 1}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--every", "-1"], "stream: --every must be 0 seconds or more, not -1"),
        (["--every", "nan"], "stream: --every must be 0 seconds or more, not nan"),
        (["--files-per-batch", "0"], "stream: --files-per-batch must be 1 or more, not 0"),
        (["--run-id", ""], "stream: --run-id: is empty: ''"),
        (["--region", "moon"], "stream: --region: 'moon' is no region"),
    ],
)
def test_invalid_arguments_are_named(more, message, queue, tmp_path, capsys):
    from pipeline import stream

    here = ["--files", str(tmp_path), "--out", str(tmp_path / "out"), "--run-id", "r"]
    assert stream.main([*here, "--queue-url", queue.queue_url, *more]) == 1
    assert capsys.readouterr().err.startswith(message)
