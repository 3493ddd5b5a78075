"""xorack.testing: a tracker for users' tests, whose acker is in memory."""

import subprocess
import sys

from xorack import Tracker, fan_in, fan_out
from xorack.testing import MemoryTracker

TEST = """
pytest_plugins = ["xorack.testing"]

def test_good(xorack_tracker):
    with xorack_tracker.step(xorack_tracker.start("t")):
        pass
    assert xorack_tracker.state("t") == "acked"

def test_bad(xorack_tracker):
    root = xorack_tracker.start("t")
    for name in ("a", "b"):  # a step that runs again has to start the same children
        with xorack_tracker.step(root) as step:
            step.child(name)
"""


class Context:
    function_name = memory_limit_in_mb = invoked_function_arn = aws_request_id = "x"


def test_a_handler_and_its_fan_out_are_tested_without_aws():
    tracker, done = MemoryTracker(token_key="a secret of 16 bytes"), []
    assert isinstance(tracker, Tracker)
    with tracker.step(tracker.start("file/1", timeout=60)) as step:
        fan_out(step, {n: {"n": n} for n in range(3)}, "https://work", tracker.client)

    @fan_in(tracker, required=True, skip_ended=True)
    def handler(record, step):
        if record.json_body["n"] == 2 and not done.count(2):
            done.append(2)
            raise ValueError("fails once")
        done.append(record.json_body["n"])

    event = tracker.received("https://work")
    (failed,) = handler(event, Context())["batchItemFailures"]
    assert (tracker.state("file/1"), tracker.events) == ("open", [])
    again = [one for one in event["Records"] if one["messageId"] == failed["itemIdentifier"]]
    handler({"Records": again}, Context())
    assert sorted(done) == [0, 1, 2, 2]
    assert (tracker.events[0]["status"], tracker.events[0]["finished"]) == ("acked", 4)
    assert tracker.received("https://work") == {"Records": []}


def test_time_passes_and_what_is_missing_is_named():
    tracker = MemoryTracker()
    with tracker.step(tracker.start("t", timeout=60)) as step:
        lost = step.child("a")
    tracker.pass_time(59)
    assert tracker.state("t") == "open"
    tracker.extend(lost, 60)
    tracker.pass_time(59)
    assert tracker.events == []
    tracker.pass_time(2)
    (event,) = tracker.events
    assert (event["status"], event["reason"]) == ("failed", "timed out")
    assert event["outstanding"] == [f"{lost.unit:016x}"]
    assert (tracker.state("t"), tracker.state("none")) == ("failed", None)


def test_the_fixture_fails_a_test_whose_requests_are_rejected(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed, 1 error" in run.stdout
    assert "requests were rejected" in run.stdout
