"""`make demo` as its user sees it: the embedded AWS, the stack, the Spark jobs."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, python
from tests.support.plain_words import counted
from tests.support.plain_words import words as plain_words

pytestmark = pytest.mark.slow

TEXTS = {
    "one.txt": "The quick brown fox jumps over the lazy dog. The end.",
    "deep/er/two.txt": "the fox, the fox; THE FOX! naïve Straße",
    "deep/empty.txt": "",
    "blanks.txt": " \n\t\n",
}


@pytest.fixture
def database(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def demo(work, *arguments, **environ):
    """Run it; return the process, its progress lines, its table and its commonest words."""
    # The small jobs end sooner when Java compiles less.
    environ = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", **environ}
    done = python("-m", "demo", f"--work={work}", *map(str, arguments), **environ)
    progress, _, table = done.stdout.partition("\n\n")
    rows = dict(re.findall(r"^(\w[\w ]*?)  +(\S.*)$", table, re.MULTILINE))
    words = re.findall(r"^ +([\d,]+)  (\S+)$", table, re.MULTILINE)
    return done, progress, rows, {word: int(count) for count, word in words}


def read_counts(folder):
    import pyarrow.parquet as pq

    return {row["word"]: row["count"] for row in pq.read_table(folder).to_pylist()}


def assert_words(rows, words):
    """The demo prints and writes the right counts; return them."""
    expected = counted(" ".join(TEXTS.values()))
    assert rows["words"] == f"{expected.total()} ({len(expected)} different)"
    assert all(expected[word] == count for word, count in words.items())
    assert read_counts(Path(ROOT, rows["counts"])) == expected
    return expected


def test_every_file_is_acked_but_the_one_that_cannot_be_read(demo_work, database):
    (database / "bad.txt").write_bytes(b"caf\xe9 is not UTF-8")
    # Settings of another Spark and of an AWS account are ignored.
    done, progress, rows, words = demo(
        demo_work, "--dir", database, SPARK_HOME="/nowhere", AWS_ENDPOINT_URL="http://127.0.0.1:9"
    )
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
    assert "synthesising" not in progress
    assert "chains: 4 of 5 acked, 1 failed" in progress
    assert (rows["files"], rows["chains acked"]) == ("5", "4 of 5")
    (line,) = (line for line in done.stdout.splitlines() if "failed:" in line)
    assert line.startswith(f"  demo/file/bad.txt: failed: {database}/bad.txt ")
    assert "utf-8" in line
    expected = assert_words(rows, words)
    assert dict(expected.most_common(2)).items() <= words.items()
    # Every file's create, two files' stamps, and a write after each event. The other three end by
    # requests that may come in another batch than their creates.
    assert 5 + 2 + 5 <= int(rows["DynamoDB writes"]) <= 5 + 2 + 5 + 3
    assert "Lambda errors" not in rows
    assert not (demo_work / "tmp").exists()


@pytest.mark.timeout(600)
def test_lost_words_are_named(demo_work, database):
    done, progress, rows, _ = demo(demo_work, "--dir", database, "--lose", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = counted(" ".join(TEXTS.values()))
    lost = re.findall(r"^  [0-9a-f]{16}  (.+), position (\d+): (\w+)$", done.stdout, re.MULTILINE)
    assert len(lost) == 2
    for path, position, word in lost:
        assert plain_words((database / path).read_text())[int(position)] == word
        assert f"loss: {path}, position {position}: {word}\n" in progress
    assert "loss: deleted 2 words of 2 files\n" in progress
    counts = read_counts(demo_work / "counts")
    assert f"count: {len(counts)} different words, 2 missing" in progress
    assert "failed: 2 files, at their deadline (the other files: 2 acked)" in progress
    assert rows["chains acked"] == "2 of 4"
    assert counts == expected - Counter(word for _, _, word in lost)
