"""The billing of docs/schedulers.md; tests/infrastructure/test_schedulers.py has what calls it."""

import subprocess
from types import SimpleNamespace

import pytest

from examples import billing
from tests.support.functions import message
from xorack.core.request import Request
from xorack.core.stamp import traced


class Died(BaseException):
    """The end of a task."""


class Billed:
    """A table of what is billed; the task dies once before it records the second charge."""

    def __init__(self):
        self.tags, self.dies = set(), True

    def get_item(self, Key, ConsistentRead):
        return {"Item": Key} if Key["tag"] in self.tags else {}

    def put_item(self, Item):
        if self.tags and self.dies:
            self.dies = False
            raise Died
        self.tags.add(Item["tag"])


def test_a_task_that_is_retried_bills_nothing_twice(functions, stack, xorack, monkeypatch, capsys):
    """Acked chains are looked up by the command that the docs name, over the acker's table."""
    creates = [Request.create(f"order/{n}", "c", traced(5), started=1) for n in range(3)]
    done = [Request.stamp_(f"order/{n}", "s", traced(5), finished=1) for n in range(2)]
    functions.consume(message(*creates, *done))
    capsys.readouterr()  # the function's log

    def run(command, **_):
        status, out, err = xorack(*command[1:])
        assert status == 0, err
        return SimpleNamespace(stdout="\n".join(out))

    monkeypatch.setattr(subprocess, "run", run)
    charges, table = [], Billed()
    monkeypatch.setattr(
        billing, "charge", lambda tag, idempotency_key: charges.append(idempotency_key)
    )
    with pytest.raises(Died):
        billing.bill_acked("order", table)
    assert len(billing.bill_acked("order", table)) == 1
    assert billing.bill_acked("order", table) == []
    assert (len(charges), len({*charges})) == (3, 2)  # the service charges once a key
