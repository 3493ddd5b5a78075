"""The code in docs/fan-in.md runs as it stands there."""

import logging
import re
from pathlib import Path

import pytest

from tests.functional.test_fan_in import Work, acked
from tests.support.functions import Context

PAGE = Path(__file__).parents[2] / "docs" / "fan-in.md"


def names_of_page(work, monkeypatch, **given):
    """Run the page's blocks of Python in one namespace; return it."""
    monkeypatch.setenv("XORACK_QUEUE_URL", work.tracker.queue_url)
    monkeypatch.setenv("XORACK_TABLE", work.table_name)
    monkeypatch.setenv("ONCE_TABLE", "once")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 13
    names = {"work_queue_url": work.url, **given}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_code_of_the_page(aws, functions, monkeypatch):
    work, processed, again = Work(aws), [], {"second"}
    detail = {"tag": "file/orders.csv", "outstanding": []}
    names = names_of_page(
        work,
        monkeypatch,
        lines=['{"pages": [{}]}'] * 3,
        lines_of=lambda event: {"first": "{}", "second": "{}"},
        process=processed.append,
        event={"detail": detail},
        log=logging.getLogger("test"),
    )
    assert names["names"] == {}
    first, *others = work.receive()["Records"]
    assert names["split"]({"Records": [first]}, Context()) == {"batchItemFailures": []}
    names["handler"]({"Records": [*others, *work.receive()["Records"]]}, Context())
    assert len(processed) == 3
    assert acked(functions, "file/orders.csv") == 5
    names["load"]({"Records": others}, Context())
    assert len(processed) == 3

    # One file of three messages.
    published = []
    names |= {"publish": lambda file, token: published.append(token), "make_file": len}
    with work.tracker.step(work.tracker.start("files/1")) as step:
        tokens = [step.child(n) for n in range(3)]
    names["write"]([], tokens)
    with work.tracker.step(*published):
        pass
    assert acked(functions, "files/1") == 5

    batch = {"Records": [{"eventSource": "aws:sqs", "messageId": n, "body": "{}"} for n in "ab"]}
    names["handler"], kept = lambda *_: {"batchItemFailures": [{}]}, names["handler"]
    with pytest.raises(RuntimeError, match="1 records failed"):
        names["all_or_nothing"](batch, Context())
    names["handler"] = kept

    event = {"id": "1", "source": "shop", "detail-type": "order", "detail": {}}
    names["on_file"](event, Context())
    names["on_event"](event, Context())
    assert processed[-1] == event

    def handle(message, step):
        if step.child("x") and again:
            raise OSError(again.pop())

    monkeypatch.setattr(work.sqs, "delete_message", lambda **_: processed.append("deleted"))
    names["poll"](work.sqs, handle)
    assert processed[-1] == "deleted"
    functions.deliver()
    assert functions.item("shop/1")["finished"] == {"N": "2"}
    names["dead_lettered"]({"Records": [first]}, Context())
    functions.deliver()
    assert functions.aws.dead_letters() == []
