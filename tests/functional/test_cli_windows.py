"""`xorack wait --window` and `show`, of a window over a log, over moto in process."""

import json

from tests.support.cli import apply
from xorack.core import windows
from xorack.core.request import Request

TAG = "shop/orders/2026-09-14T14"
KEYS = ["orders/9", "orders/10", "orders/11", "eu"]


def nothing():
    pass


def create():
    return windows.create(TAG, {"log": "orders", "ranges": "d"}, KEYS, timeout=3600)


def finished(*keys):
    return [windows.finish(TAG, "d", key) for key in keys]


def test_a_window_is_waited_for(stack, xorack, sleeps):
    apply(stack, Request("create", "other", "c", starts=[1]))
    timed_out = xorack("wait", "--window", "orders/2026-09-14T14", "--timeout", "0")
    assert timed_out == (3, [], ["orders/2026-09-14T14 is not open"])
    sleeps += [lambda: apply(stack, create(), *finished(*KEYS[:2])), nothing, nothing]
    short = ("wait", "--window", "orders/2026-09-14T14", "--interval", "1")
    assert xorack(*short, "--timeout", "11") == (3, [f"{TAG}: eu, orders/11 lag"], [])
    status, out, _ = xorack("show", TAG)
    assert status == 0
    assert {line.split()[-1] for line in out[-2:]} == {"eu", "orders/11"}
    apply(stack, Request("note", TAG, "n", text="batch 7 lacks 2 rows", missing_count=2))
    missing = [f"{TAG}: eu, orders/11 lag"], ["batch 7 lacks 2 rows; 2 units missing"]
    assert xorack("wait", "--window", TAG, "--timeout", "0") == (1, *missing)
    sleeps.clear()
    sleeps += [lambda: apply(stack, *finished(*KEYS[2:]))]
    status, (line,), _ = xorack("wait", "--window", TAG, "--json")
    assert (status, json.loads(line)["lagging"], json.loads(line)["status"]) == (0, [], "acked")
    apply(stack, windows.create("other/orders/2026-09-14T14", {"ranges": "d"}, KEYS))
    (error,) = xorack(*short)[2]
    assert error.endswith(f"such as other/orders/2026-09-14T14, {TAG}")
    assert xorack("wait", "--window", TAG, "--run", "shop")[0] == 2
