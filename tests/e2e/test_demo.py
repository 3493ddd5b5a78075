"""`make demo` as its user runs it: the embedded AWS, the stack, the Spark jobs."""

import json
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest

from tests.e2e.conftest import python
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
    """Run the demo without a terminal; return the process, and the JSON of the printed event."""
    # The small jobs end sooner when Java compiles less.
    environ = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", **environ}
    done = python("-m", "demo", f"--work={work}", *map(str, arguments), **environ)
    event = re.search(r"^\{$.*?^\}$", done.stdout, re.MULTILINE | re.DOTALL)
    assert event, done.stdout + done.stderr
    return done, json.loads(event[0])


def read_counts(folder):
    return {row["word"]: row["count"] for row in pq.read_table(folder).to_pylist()}


def test_every_file_is_acked_but_the_one_that_cannot_be_read(demo_work, database):
    (database / "bad.txt").write_bytes(b"caf\xe9 is not UTF-8")
    # Settings of another Spark and of an AWS account are ignored.
    done, event = demo(
        demo_work, "--dir", database, SPARK_HOME="/nowhere", AWS_ENDPOINT_URL="http://127.0.0.1:9"
    )
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
    assert "synthesising" not in done.stdout
    assert done.stdout.startswith(f"Two Spark jobs count the words of 5 files ({database}): ")
    assert "http://127.0.0.1:" in done.stdout
    assert "\n4 of 5 files acked, 1 failed\n" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("not acked: "))
    assert line.startswith(f"not acked: demo/file/bad.txt: {database}/bad.txt ")
    assert "utf-8" in line
    assert (event["source"], event["detail-type"]) == ("xorack", "failed")
    assert event["detail"]["tag"] == "demo"
    ended = {"acked": 4, "failed": 1, "failed_tags": ["demo/file/bad.txt"]}
    assert event["detail"]["children"] == ended
    expected = counted(" ".join(TEXTS.values()))
    assert read_counts(demo_work / "counts") == expected
    assert not (demo_work / "tmp").exists()


@pytest.mark.timeout(600)
def test_lost_words_are_named(demo_work, database):
    done, event = demo(demo_work, "--dir", database, "--lose", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = counted(" ".join(TEXTS.values()))
    pattern = r"^  (\w+) +(\S+\.txt), word (\d+)  +(?:null key|killed worker): "
    lost = re.findall(pattern, done.stdout, re.MULTILINE)
    assert len(lost) == 2
    for word, path, position in lost:
        assert plain_words((database / path).read_text())[int(position)] == word
    words = expected.total()
    assert f"row count    is too low, and names no row: {words - 2} of {words}" in done.stdout
    assert "xorack       2 words lost; the events of the failed files name 2" in done.stdout
    assert "\n2 of 4 files acked, 2 failed\n" in done.stdout
    assert (event["detail-type"], event["detail"]["reason"]) == ("failed", "timed out")
    assert (event["detail"]["tag"], event["detail"]["children"]["failed"]) == ("demo", 2)
    assert read_counts(demo_work / "counts") == expected - Counter(word for word, *_ in lost)
