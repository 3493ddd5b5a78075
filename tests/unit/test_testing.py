"""xorack.testing: a tracker for users' tests, whose acker is in memory."""

import asyncio
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from xorack import Tracker, fan_in, fan_out, names_of
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


def test_a_chain_may_be_a_unit_of_another_chain():
    tracker = MemoryTracker()
    with tracker.step(tracker.start("run", timeout=60)) as step:
        units = {name: step.child(name) for name in ("a", "b", "c")}
    files = {name: tracker.start(f"run/{name}", parent=unit) for name, unit in units.items()}
    for name in ("a", "b"):
        with tracker.step(files[name]):
            pass
    assert tracker.state("run") == "open"
    tracker.fail(files["c"], "it is corrupt")
    tracker.pass_time(61)
    event = tracker.events[-1]
    assert (event["tag"], event["reason"]) == ("run", "timed out")
    assert event["children"] == {"acked": 2, "failed": 1, "failed_tags": ["run/c"]}
    assert tracker.rejected == []


PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def snippet(word, **names):
    """Run the snippet of the page that has a word; return its names."""
    (code,) = (each for each in SNIPPETS if word in each)
    exec(code, names)
    return names


def test_the_snippets_for_tests_and_asyncio_do_what_the_page_says():
    tracker = MemoryTracker()
    test = snippet("def test_a_lost_line", fan_out=fan_out, names_of=names_of)
    test["test_a_lost_line_is_named"](tracker)
    work = snippet("asyncio.gather", asyncio=asyncio)["work"]
    with tracker.step(tracker.start("async", timeout=60)) as step:
        tokens = [step.child(number) for number in range(3)]

    async def handle(step):
        await asyncio.sleep(0)

    # Another thread has no loop, but in this one the tests of the page may have left Playwright's.
    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, work(tracker, tokens, handle)).result()
    assert (tracker.state("async"), tracker.rejected) == ("acked", [])


def test_the_snippets_for_celery_and_rq_finish_the_units_of_their_tasks():
    tracker, sent = MemoryTracker(), []
    celery = SimpleNamespace(task=lambda **_: lambda function: function)
    mail = SimpleNamespace(delay=lambda *arguments: sent.append(arguments))
    names = {"tracker": tracker, "charge": str.upper, "celery": celery, "send_receipt": mail}
    with tracker.step(tracker.start("order", timeout=60)) as step:
        of_celery, of_rq = (step.child(n).to_json() for n in range(2))
    snippet("@celery.task", **names)["bill"](None, "oil", of_celery)
    snippet("# of RQ", **names)["bill"]("rope", of_rq)
    ((receipt, token),) = sent
    assert (receipt, tracker.state("order")) == ("OIL", "open")
    with tracker.step(token):
        pass
    assert (tracker.state("order"), tracker.rejected) == ("acked", [])


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
    # The checkout may not be installed, as `pip install -r requirements.txt` is enough.
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert "2 passed, 1 error" in run.stdout
    assert "requests were rejected" in run.stdout
