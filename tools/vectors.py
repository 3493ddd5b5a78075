"""Write docs/vectors.json: inputs and results of the protocol, for clients in other languages.

docs/vectors.md describes the format. The vectors follow from a fixed seed, so a change of the file
is a change of the protocol.

    python -m tools.vectors [--check]
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

from xorack.client.tracker import Token, Tracker
from xorack.core.chain import Chain
from xorack.core.event import event_detail
from xorack.core.hashing import unit_id, xxh64_long
from xorack.core.message import parse
from xorack.core.peeling import peel
from xorack.core.request import Request
from xorack.core.stamp import TRACED_SIZES, plain, traced, traced_length, xor_bytes
from xorack.core.transitions import Limits, apply, expire

PATH: Final = Path(__file__).resolve().parent.parent / "docs" / "vectors.json"
LIMITS: Final = Limits(default_timeout=86_400_000, pending_timeout=4 * 86_400_000)
START: Final = 1_700_000_000_000
_UNIT_OF_ZERO: Final = 0xFAEC1E2AC606499C
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "str": str,
    "int": int,
    "bytes": base64.b64decode,
    "bool": bool,
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    "decimal": Decimal,
}
"""The types of a part of a unit's name."""


def read_part(part: Mapping[str, Any]) -> Any:
    """Return the value of a part, such as ``{"int": "17"}``."""
    ((kind, value),) = part.items()
    return _READERS[kind](value)


def sparse(stamp: bytes) -> dict[str, Any]:
    """Return the length of a stamp and its non-zero little-endian words by position."""
    words = (stamp[at : at + 8] for at in range(0, len(stamp), 8))
    numbers = (int.from_bytes(word, "little") for word in words)
    return {
        "length": len(stamp),
        "words": {str(at): _hex(number) for at, number in enumerate(numbers) if number},
    }


def dense(stamp: Mapping[str, Any]) -> bytes:
    """Return the bytes of a stamp that `sparse` describes."""
    words = {int(at): int(number, 16) for at, number in stamp["words"].items()}
    count = -(-stamp["length"] // 8)
    return b"".join(words.get(at, 0).to_bytes(8, "little") for at in range(count))


def _hex(number: int) -> str:
    return f"{number:016x}"


def _units() -> list[dict[str, Any]]:
    names: list[list[dict[str, Any]]] = [
        [{"str": ""}],
        [{"str": "database/file13"}],
        [{"str": "database/file13"}, {"int": "0"}],
        [{"str": "naïve 文字 😀"}],
        [{"str": "x" * 31}],
        [{"str": "x" * 32}],
        [{"str": "0123456789" * 10}],
        [{"bytes": ""}],
        [{"bytes": base64.b64encode(bytes(range(256))).decode()}],
        *([{"int": str(number)}] for number in (0, 1, -1, 2**31, 2**63 - 1, -(2**63))),
        [{"int": "17"}, {"str": "rope"}, {"int": "-5"}],
        [{"bool": True}],
        [{"date": "2026-01-31"}],
        [{"date": "1969-12-31"}],
        [{"timestamp": "2026-01-31T12:00:00.000001Z"}],
        *([{"decimal": text}] for text in ("1.50", "-0.25", "100", "0.000")),
    ]
    return [{"parts": parts, "id": _hex(unit_id(*map(read_part, parts)))} for parts in names]


def _hashes(random_: random.Random) -> list[dict[str, str]]:
    units = [1, 2, 2**63, 2**64 - 1, _UNIT_OF_ZERO, *(random_.getrandbits(64) for _ in range(20))]
    return [{"id": _hex(unit), "hash": _hex(xxh64_long(unit))} for unit in units]


def _sum(units: Iterable[int], cells: int) -> bytes:
    return reduce(xor_bytes, (traced(unit, cells) for unit in units), bytes(traced_length(cells)))


def _stamps(random_: random.Random) -> list[dict[str, Any]]:
    units = random_.getrandbits(64)
    cases = [{"kind": "plain", "ids": [_hex(units)], **sparse(plain(units))}]
    for cells in TRACED_SIZES:
        for count in (1, 2):
            ids = [random_.getrandbits(64) for _ in range(count)]
            case = {"kind": "traced", "cells": cells, "ids": [_hex(unit) for unit in ids]}
            cases.append({**case, **sparse(_sum(ids, cells))})
    return cases


def _peeling(random_: random.Random) -> list[dict[str, Any]]:
    sums = [b"\0" * 8, plain(7), b"\1" * 24, b"\0" * traced_length(16)]
    for cells, count in ((16, 1), (16, 8), (16, 20), (64, 40), (256, 60), (1024, 80)):
        first = random_.getrandbits(63) + 1
        sums.append(_sum(range(first, first + count), cells))
    cases = []
    for residual in sums:
        ids, complete = peel(residual)
        cases.append({**sparse(residual), "ids": sorted(map(_hex, ids)), "complete": complete})
    return cases


_ONE: Final = "AQ=="
_STAMP: Final = {"op": "stamp", "tag": "t", "id": "i", "stamp": _ONE}
_CREATE: Final = {**_STAMP, "op": "create"}
_FAIL: Final = {"op": "fail", "tag": "t", "id": "i"}
_EXTEND: Final = {"op": "extend", "tag": "t", "id": "i"}


def _without(request: Mapping[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name != field}


def _bodies() -> list[str]:
    requests: list[list[Any]] = [
        [_CREATE, {**_STAMP, "id": "s", "started": 3, "finished": 1}, {**_FAIL, "reason": "why"}],
        [{**_CREATE, "timeout": 0.5, "idle_timeout": 600, "detail": {"any": ["JSON", None]}}],
        [{**_CREATE, "resume": {"step_functions": "token"}}],
        [{**_EXTEND, "timeout": 7200}, _EXTEND],
        [{**_STAMP, "tag": "é" * 512, "id": "é" * 64}],
        *([_without(_STAMP, field)] for field in ("op", "tag", "id", "stamp")),
        *(
            [{**request, field: value}]
            for request, field, values in (
                (_STAMP, "op", ["zap", None]),
                (_STAMP, "tag", ["", 7, "x" * 1025, "é" * 513, "a\0b"]),
                (_STAMP, "id", ["", 1, "x" * 129]),
                (_STAMP, "stamp", [1, "!!!!", "AQ", "A-_=", "", "AAAA", "AQ==\n"]),
                (_STAMP, "started", [-1, 1.5, True, None, "1"]),
                (_STAMP, "timeout", [5]),
                (_STAMP, "surprise", [5]),
                (_CREATE, "timeout", [0, -5, "5", 316_224_001]),
                (_CREATE, "detail", [[], None, {"x": "y" * 4096}]),
                (_CREATE, "resume", ["token", {}, {"email": "a"}, {"lambda": "a", "b": "c"}]),
                (_STAMP, "resume", [{"lambda": "a"}]),
                (_FAIL, "stamp", [_ONE]),
                (_FAIL, "reason", [5, "x" * 1025]),
            )
            for value in values
        ),
        [_STAMP, {**_STAMP, "id": ""}, _FAIL, 7],
        [],
    ]
    packed = partial(json.dumps, separators=(",", ":"), ensure_ascii=False)
    return [
        *(packed({"version": 1, "requests": listed}) for listed in requests),
        *(packed({"version": version, "requests": [_FAIL]}) for version in (2, "1", True, None)),
        packed({"version": 1, "requests": [_FAIL], "more": 1}),
        packed({"version": 1}),
        packed([_FAIL]),
        "not JSON",
        "",
    ]


def _repeated() -> list[str]:
    fail = json.dumps(_FAIL, separators=(",", ":"))
    return [
        f'{{"version":1,"version":1,"requests":[{fail}]}}',
        f'{{"version":1,"requests":[{fail[:-1]},"id":"j"}}]}}',
        f'{{"version":1,"requests":[{json.dumps(_CREATE)[:-1]},"detail":{{"a":1,"a":2}}}}]}}',
    ]


def _message(body: str) -> dict[str, Any]:
    requests, rejected = parse(body)
    fields = [entry.reason.split(":")[0] for entry in rejected]
    return {"body": body, "accepted": [request.id for request in requests], "rejected": fields}


def _messages() -> list[dict[str, Any]]:
    strict = [{**_message(body), "strict_json": True} for body in _repeated()]
    return [*map(_message, _bodies()), *strict]


def _base64(number: int) -> str:
    return base64.b64encode(bytes([number])).decode()


def _steps() -> dict[str, list[dict[str, Any]]]:
    """Return the steps of the transitions' cases by name: seconds, and requests or a sweep."""
    create = {**_CREATE, "id": "c", "started": 1}
    finish = {**_STAMP, "id": "f", "finished": 1}
    fail = {**_FAIL, "id": "x", "reason": "broken"}
    split = {**_STAMP, "id": "s", "stamp": _base64(1 ^ 2 ^ 4), "started": 2, "finished": 1}
    two = {**_STAMP, "id": "2", "stamp": _base64(2), "finished": 1}
    four = {**_STAMP, "id": "4", "stamp": _base64(4), "finished": 1}
    wide = base64.b64encode(b"\1\2").decode()
    trace = [base64.b64encode(traced(unit)).decode() for unit in (5, 6)]

    def at(second: int, *requests: Mapping[str, Any]) -> dict[str, Any]:
        return {"at": second, "requests": list(requests)}

    def sweep(second: int) -> dict[str, Any]:
        return {"at": second, "sweep": True}

    return {
        "acked": [at(0, create), at(1, split), at(2, two), at(3, four)],
        "any order": [at(0, four), at(1, split, two), at(2, create)],
        "one batch": [at(0, four, split, create, two)],
        "duplicates": [at(0, create, create), at(1, split), at(2, split, two), at(3, four, two)],
        "counts differ": [at(0, create), at(1, {**finish, "finished": 0}), sweep(86_401)],
        "fail": [at(0, create), at(1, fail), at(2, finish)],
        "fail before create": [at(0, fail), at(1, create)],
        "fail wins": [at(0, create, finish, fail)],
        "second create": [at(0, create), at(1, {**create, "id": "d"}), at(2, finish)],
        "create after the end": [at(0, create), at(1, finish), at(2, {**create, "id": "d"})],
        "late": [at(0, create), at(1, finish), at(2, two), at(3, finish)],
        "id used again": [at(0, create), at(1, split), at(2, {**split, "started": 3})],
        "time-out": [at(0, {**create, "timeout": 10}), sweep(9), sweep(10), at(11, finish)],
        "idle": [at(0, {**create, "idle_timeout": 10}), at(8, split), sweep(17), sweep(18)],
        "extend": [
            at(0, {**create, "timeout": 10}),
            at(5, {**_EXTEND, "timeout": 20}),
            sweep(10),
            sweep(25),
        ],
        "never created": [at(0, finish), sweep(345_599), sweep(345_600), at(345_601, create)],
        "another length": [at(0, create), at(1, {**finish, "stamp": wide}), at(2, finish)],
        "create of another length": [at(0, {**finish, "stamp": wide}), at(1, create)],
        "outstanding": [
            at(0, {**create, "stamp": trace[0], "timeout": 10, "detail": {"customer": "Ahab"}}),
            at(1, {**split, "stamp": trace[1], "finished": 0, "started": 1}),
            sweep(10),
        ],
    }


def chain_after(chain: Chain | None, step: Mapping[str, Any]) -> tuple[Chain | None, list[str]]:
    """Apply a step to a chain; return the chain, and the outcome of each request."""
    now = START + 1000 * step["at"]
    if step.get("sweep"):
        return (chain and expire(chain, now)), []
    requests = [Request.from_json(raw) for raw in step["requests"]]
    applied = apply(chain, requests, now=now, limits=LIMITS)
    return applied.chain, [
        type(outcome.error).__name__ if outcome.error else outcome.kind
        for outcome in applied.outcomes
    ]


def state(chain: Chain) -> dict[str, Any]:
    """Return what the protocol says of a chain."""
    stamp = base64.b64encode(chain.stamp).decode()
    return {
        "status": chain.status,
        "stamp": stamp,
        "started": chain.started,
        "finished": chain.finished,
        "event": _without(event_detail(chain), "id") if chain.final else None,
    }


def _transitions() -> list[dict[str, Any]]:
    cases = []
    for name, steps in _steps().items():
        chain: Chain | None = None
        done = []
        for step in steps:
            chain, outcomes = chain_after(chain, step)
            assert chain is not None
            done.append({**step, "outcomes": outcomes, "chain": state(chain)})
        cases.append({"name": name, "steps": done})
    return cases


class _Queue:
    """An SQS client that keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def send_message_batch(self, *, Entries: Sequence[Mapping[str, Any]], **_: Any) -> Any:
        for entry in Entries:
            self.requests += json.loads(entry["MessageBody"])["requests"]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}


def run_tracker(case: Mapping[str, Any]) -> tuple[list[Token], list[dict[str, Any]]]:
    """Run a case of the trackers; return its tokens (root, children) and its requests."""
    queue = _Queue()
    tracker = Tracker("https://sqs.test/queue", queue, stamps=case["kind"])
    root = tracker.start(case["tag"], *map(read_part, case["parts"]))
    with tracker.step(root) as step:
        children = [step.child(*map(read_part, parts)) for parts in case["children"]]
    return [root, *children], queue.requests


def _trackers() -> list[dict[str, Any]]:
    inputs: list[dict[str, Any]] = [
        {"tag": "order/17", "parts": [], "children": [[{"str": "harpoon"}], [{"str": "rope"}]]},
        {"tag": "order/18", "parts": [{"int": "18"}], "children": [[], [{"int": "7"}]]},
    ]
    cases = []
    for kind, case in zip(("plain", "traced"), inputs, strict=True):
        tokens, requests = run_tracker({"kind": kind, **case})
        listed = [token.to_json() for token in tokens]
        cases.append({"kind": kind, **case, "tokens": listed, "requests": requests})
    return cases


def vectors() -> dict[str, Any]:
    """Return all vectors, the same each time."""
    random_ = random.Random(17)
    return {
        "version": 1,
        "units": _units(),
        "hashes": _hashes(random_),
        "stamps": _stamps(random_),
        "peeling": _peeling(random_),
        "messages": _messages(),
        "limits": {"default_timeout": 86_400, "pending_timeout": 345_600, "start": START // 1000},
        "transitions": _transitions(),
        "trackers": _trackers(),
    }


def text() -> str:
    """Return the text of docs/vectors.json: a line for each case."""
    sections = []
    for name, cases in vectors().items():
        if isinstance(cases, list):
            lines = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in cases)
            sections.append(f'  "{name}": [\n{lines}\n  ]')
        else:
            sections.append(f'  "{name}": {json.dumps(cases)}')
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> int:
    """Write the file, or compare it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare the file")
    if parser.parse_args().check:
        return int(PATH.read_text(encoding="utf-8") != text())
    PATH.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
