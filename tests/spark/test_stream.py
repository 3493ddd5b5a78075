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

from pipeline import stream
from tests.spark.helpers import (
    ROOT,
    Acker,
    apply,
    chains_in,
    count_words,
    duplicates_in,
    run_main,
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
    deadline = time.monotonic() + 300
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
        assert process.wait(120) == -signal.SIGTERM, log.read_text()[-4000:]

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
        assert process.wait(120) == 1, log.read_text()[-4000:]
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


def test_a_failing_query_stops_the_others(queue, files):
    put(files, {"a.txt": "one two"})
    queue.refuse = lambda count: True
    errors = run(queue, files, "--every", "0.2", status=1)
    # Java prints warnings of its own, which differ from version to version.
    (line,) = [line for line in errors.splitlines() if not line.startswith("WARNING: ")]
    assert line.startswith(f"stream: queue {queue.queue_url}: 1 message not sent")
    assert "not you" in line
    queue.refuse = lambda count: False
    run(queue, files, "--available-now")
    assert Acker(queue.bodies).statuses() == {"acked": 1}


def test_files_of_all_names_become_chains_and_others_are_counted(spark, queue, tmp_path):
    """Brackets, folders such as a=1; and what Spark or the stream leaves out."""
    root = tmp_path / "arriving [1]"
    texts = {
        "a=1/x.txt": "one",
        "a=2/x.txt": "two two",
        "sub/x.txt": "three",
        "x.txt": "four",
        "name [2] {a,b} *?\\.txt": "six",
    }
    hidden = dict.fromkeys(("_a.txt", ".b.txt", "c._COPYING_", "_temporary/0/d.txt"), "hidden")
    write_files(root, {**texts, **hidden, "utf-16.txt": "seven".encode("utf-16-le")})
    (root / "circle").symlink_to(root)
    with open(os.path.join(os.fsencode(root), b"caf\xe9.txt"), "wb"):
        pass
    (root / "12:00.txt").write_text("five")
    errors = run(queue, root, "--available-now", status=1)
    assert "stream: --files: the name '12:00.txt' has a colon" in errors
    (root / "12:00.txt").unlink()
    errors = run(queue, root, "--available-now")
    acker = Acker(queue.bodies)
    statuses = {tag.removeprefix("r/file/"): one.status for tag, one in acker.chains.items()}
    assert statuses == {**dict.fromkeys(texts, "acked"), "utf-16.txt": "failed"}
    assert "Is it UTF-16?" in acker.chains["r/file/utf-16.txt"].attributes()["reason"]
    assert counted_in(spark, root) == count_words(texts.values())
    (line,) = [line for line in errors.splitlines() if line.startswith("stream: left out")]
    assert line == (
        "stream: left out: 1 name that is not UTF-8, such as 'caf\\\\xe9.txt'; "
        "4 hidden names, such as '.b.txt'; 1 link to a folder, such as 'circle'"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "out [1]"], "has characters of Spark's patterns"),
        (["--out", "arriving/out"], "is inside --files"),
        (["--every", "-1"], "--every must be 0 seconds or more, not -1"),
        (["--files-per-batch", "0"], "option 'maxFilesPerTrigger', must be a positive integer"),
        (["--region", "moon"], "stream: --region: 'moon'"),
    ],
)
def test_invalid_arguments_are_named(spark, more, message, queue, tmp_path, capsys):
    (tmp_path / "arriving").mkdir()
    more = [str(tmp_path / one) if "/" in one or "[" in one else one for one in more]
    here = ["--files", tmp_path / "arriving", "--out", tmp_path / "out", *more]
    assert run_main(stream, queue, "r", tmp_path / "records", *here) == 1
    printed, errors = capsys.readouterr()
    assert message in errors
    assert (printed, errors.count("\n")) == ("", 1)
