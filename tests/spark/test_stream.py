"""The streaming word count: killed between sending and committing, stopped, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from tests.spark.helpers import (
    ROOT,
    Acker,
    apply,
    chains_in,
    count_words,
    duplicates_in,
    run_process,
    totals,
    write_files,
)
from tests.support.plain_words import counted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Runs the streams; kills itself right after a query sent its n-th batch (DIE_AFTER=step:n).
RUN = """
import os, signal, sys
from collections import Counter
from pipeline import stream
from xorack.spark import TrackedRows
sent = Counter()
def dying(step):
    real = getattr(TrackedRows, step)
    def send(*given, **options):
        done = real(*given, **options)
        sent[step] += 1
        if f"{step}:{sent[step]}" == os.environ.get("DIE_AFTER"):
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(TrackedRows, step, send)
dying("start")
dying("finish")
sys.exit(stream.main(sys.argv[1:]))
"""


@pytest.fixture
def files(tmp_path):
    """Make a folder of arriving files; the output is beside it."""
    (tmp_path / "arriving").mkdir()
    return tmp_path / "arriving"


def command(queue, files, *more, run_id="r", die_after=None):
    """Return a command line and options for `subprocess`."""
    words = [sys.executable, "-c", RUN, "--files", str(files), "--out", str(files.parent / "out")]
    words += ["--queue-url", queue.queue_url, "--run-id", run_id, "--files-per-batch", "3", *more]
    words += ["--records", str(files.parent / "records")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DIE_AFTER": die_after or ""}
    return words, {"cwd": ROOT, "env": environment}


def run(queue, files, *more, status=0, **options):
    """Run the streams to their end; return what they wrote on stderr."""
    words, how = command(queue, files, *more, **options)
    return run_process(words, **how, status=status).stderr


def put(files, texts):
    write_files(files.parent, texts)
    for name in texts:
        (files.parent / name).rename(files / name)


def counted_in(spark, files):
    batches = spark.read.parquet(str(files.parent / "out" / "counts"))
    return Counter(dict(batches.groupBy("word").sum("count").collect()))


@contextmanager
def running(queue, files, log, **options):
    """Run the streams in the background; kill them at the end."""
    words, how = command(queue, files, "--every", "0.2", **options)
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
    deadline = time.monotonic() + 600
    while not holds():
        assert process.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.2)


def uncommitted(files):
    """Return the batches that each query began and did not commit."""

    def batches(name, kind):
        found = (files.parent / "out" / "checkpoints" / name / kind).iterdir()
        return {path.name for path in found if not path.name.startswith(".")}

    queries = ("words", "starts", "counts")
    return {name: batches(name, "offsets") - batches(name, "commits") for name in queries}


def test_a_stopped_or_killed_stream_continues_where_it_was(spark, queue, functions, files):
    log, old = files.parent / "log", files.parent / "old.txt"
    first = {f"a{n}.txt": f"one two {'three ' * n}" for n in range(3)}
    put(files, first)
    with running(queue, files, log) as process:
        until(process, log, lambda: Acker(queue.bodies).statuses() == {"acked": 3})
        # While it runs: an unreadable file, and one that is older than all others.
        put(files, {"bad.txt": b"caf\xe9 au lait"})
        old.write_text("four")
        os.utime(old, (86_400, 86_400))
        old.rename(files / "old.txt")
        until(process, log, lambda: Acker(queue.bodies).statuses() == {"acked": 4, "failed": 1})
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == -signal.SIGTERM, log.read_text()[-4000:]

    # Another run id would give other request ids, and repeated requests would count twice.
    errors = run(queue, files, run_id="another", status=1)
    assert "already exists, from the run 'r'" in errors

    # Killed right after it sent, in each query that sends; then interrupted by Ctrl-C.
    before = list(queue.bodies)
    for step, query, name in (("start", "starts", "b0.txt"), ("finish", "counts", "b1.txt")):
        put(files, {name: "five Six five"})
        with running(queue, files, log, die_after=f"{step}:1") as process:
            assert process.wait(300) == -signal.SIGKILL, log.read_text()[-4000:]
        assert uncommitted(files)[query]
    assert len(queue.bodies) > len(before)
    with running(queue, files, log) as process:
        until(process, log, lambda: Acker(queue.bodies).statuses() == {"acked": 6, "failed": 1})
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 1, log.read_text()[-4000:]
    assert duplicates_in(queue.bodies) > 0

    # The table, after SQS delivered everything once, and again after a second time.
    texts = first | {"old.txt": "four"} | dict.fromkeys(["b0.txt", "b1.txt"], "five Six five")
    expected = {
        f"r/file/{name}": ("acked", *[counted(text).total()] * 2) for name, text in texts.items()
    }
    for expected_events in (dict.fromkeys([*expected, "r/file/bad.txt"], 1), {}):
        apply(functions, queue.bodies)
        table = totals(chains_in(functions.aws))
        assert table.pop("r/file/bad.txt")[0] == "failed"
        assert table == expected
        events = functions.aws.events()
        assert Counter(event["detail"]["tag"] for event in events) == expected_events
    assert functions.aws.dead_letters() == []
    assert counted_in(spark, files) == count_words(texts.values())
