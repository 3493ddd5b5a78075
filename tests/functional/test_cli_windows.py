"""`xorack wait --window`, `windows` and `show`, of windows over logs, over moto in process."""

import json

from tests.support.cli import apply
from xorack.core.request import Request
from xorack.spark.windows.ledger import create_request, finish_request

TAG = "shop/orders/2026-09-14T14"
KEYS = ["orders/9", "orders/10", "orders/11", "eu"]


def create():
    return create_request(TAG, {"log": "orders", "ranges": "d"}, KEYS, timeout=3600)


def finished(*keys):
    return [finish_request(TAG, "d", key) for key in keys]


def test_a_window_is_waited_for(stack, xorack, sleeps):
    apply(stack, Request("create", "other", "c", starts=[1]))
    waiting = f"{TAG} does not exist yet: waiting for it"
    short = ("wait", "--window", TAG, "--interval", "1", "--timeout")
    assert xorack(*short, "0") == (3, [], [waiting, "timed out"])
    sleeps += [lambda: apply(stack, create(), *finished(*KEYS[:2])), lambda: None]
    lag = [f"{TAG}: eu, orders/11 lag"]
    assert xorack(*short, "2") == (3, lag, [waiting, "timed out"])
    status, out, _ = xorack("show", TAG)
    assert status == 0
    assert {line.split()[-1] for line in out[-2:]} == {"eu", "orders/11"}
    apply(stack, Request("note", TAG, "n", text="2 rows of batch 7 are missing", missing_count=2))
    missing = ["2 rows of batch 7 are missing; 2 units missing", "timed out"]
    assert xorack(*short, "0") == (1, lag, missing)
    sleeps += [lambda: apply(stack, *finished(*KEYS[2:]))]
    status, (line,), _ = xorack("wait", "--window", TAG, "--json")
    assert (status, json.loads(line)["lagging"], json.loads(line)["status"]) == (0, [], "acked")
    assert xorack("wait", "--window", TAG, "shop")[0] == 2


def test_a_window_that_failed_tells_the_reason(stack, xorack):
    apply(
        stack, create(), *finished(*KEYS[:3]), Request("fail", TAG, "f", reason="closed, by hand")
    )
    failed = 1, [f"{TAG}: closed, by hand, eu lag"], []
    assert xorack("wait", "--window", TAG, "--timeout", "0") == failed


HOURS = ("2026-09-14T14", "2026-09-14T15")


def open_windows(stack, run="shop"):
    """Two hours of three logs: complete, open, missing rows, late, failed, and one not open."""
    keys, timeouts = ["t/0", "t/1", "t/2"], {("clean", HOURS[1]): 1e-3}
    for log in ("raw", "clean", "mart"):
        for hour in HOURS[: 1 if log == "mart" else 2]:
            tag, detail = f"{run}/{log}/{hour}", {"log": log, "window": hour, "ranges": "d"}
            timeout = timeouts.get((log, hour), 3600)
            apply(stack, create_request(tag, detail, keys, timeout=timeout))
            passed = keys if (log, hour) == ("raw", HOURS[0]) else keys[:2]
            apply(stack, *(finish_request(tag, "d", key) for key in passed))
    lost = Request("note", f"{run}/clean/{HOURS[0]}", "n", text="lost", missing_count=4)
    apply(stack, lost, Request("fail", f"{run}/mart/{HOURS[0]}", "f", reason="closed, by hand"))


def test_logs_are_a_table(stack, xorack):
    assert xorack("windows") == (0, ["no windows"], [])
    apply(stack, Request.create("a/raw/h", "c", starts=[1], detail={"log": "raw", "window": "i"}))
    open_windows(stack)
    status, (heads, *rows), errors = xorack("windows", "--run", "shop")
    assert (status, heads.split(), errors) == (0, ["WINDOW", "raw", "clean", "mart"], [])
    assert [" ".join(row.split()) for row in rows] == [
        f"{HOURS[1]} open 66.6 %, t/2 lags late 66.6 %, t/2 lags not open",
        f"{HOURS[0]} complete missing 66.6 %, 4 rows, t/2 lags failed 66.6 %, closed, by hand",
    ]
    status, lines, _ = xorack("windows", "mart", "none", "--limit", "1", "--json")
    assert [json.loads(line) for line in lines] == [
        {
            "run": "shop",
            "window": HOURS[0],
            "logs": {
                "none": None,
                "mart": {
                    "tag": f"shop/mart/{HOURS[0]}",
                    "state": "failed",
                    "percent": 66.6,
                    "lagging": ["t/2"],
                    "missing_count": 0,
                },
            },
        }
    ]
    apply(stack, create_request("b/raw/h", {"log": "raw", "window": "h", "ranges": "d"}, ["t/0"]))
    assert [row.split()[0] for row in xorack("windows", "raw")[1]][1:] == [
        "b/h",
        *(f"shop/{hour}" for hour in reversed(HOURS)),
    ]


def test_a_detail_of_any_sender_names_no_endless_partitions(stack, xorack):
    for number, texts in enumerate((["t/0-999999999999"], [7, None, {}], "t/0", 5)):
        detail = {"log": "raw", "window": "h", "ranges": number or "d", "partitions": texts}
        apply(stack, Request.create(f"{number}/raw/h", "c", starts=[1], detail=detail))
        assert xorack("show", f"{number}/raw/h")[0] == 0
    assert xorack("windows")[0] == 0
