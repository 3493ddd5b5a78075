"""Why chains failed: what those of a run have in common, and which of their units are missing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.client.names import Candidate, names_of
from xorack.core.chain import Chain
from xorack.core.errors import ArgumentError
from xorack.core.hashing import unit_id
from xorack.ops.reasons import explain
from xorack.ops.run import Run
from xorack.ops.status import ChainStatus
from xorack.ops.text import listed, plural

ROOT = "the chain's own unit: its first step did not end"
_MOST_CHAINS = 20_000
"""Chains whose properties are compared."""
_MOST_NAMED = 1_000
"""Failed chains whose outstanding units are named."""
_SHOWN = 10
_SHOWN_CAUSES = 5
_LEAST = 5
"""Failed chains that make a group: fewer are seen at a glance."""


def explain_run(
    store: DynamoDBStore, run: Run, candidates: Sequence[Candidate] = ()
) -> dict[str, Any]:
    """Read the chains of a run, and find out what those that failed have in common.

    Reads the whole table. The candidates are names that the steps may have given to units: see
    `xorack.names_of`.

    Returns:
        What `xorack explain --run --json` prints. ``state`` says what is explained: ``failed`` or,
        if none has failed, ``unfinished`` chains; ``count`` is their number. ``unnamed`` is the
        number of their outstanding units without a name.
    """
    now = milliseconds()
    chains = [ChainStatus(one, now) for one in store.scan(lambda _: None, prefix=run.prefix)]
    state, wanted = "failed", {"failed"}
    if not any(status.chain.status == "failed" for status in chains):
        state, wanted = "unfinished", {"open", "pending"}
    bad = [status for status in chains if status.chain.status in wanted]
    compared = [(_properties(one.chain, len(run.prefix)), one) for one in chains[:_MOST_CHAINS]]
    why = explain(
        [row for row, status in compared if status.chain.status in wanted],
        [row for row, status in compared if status.chain.status not in wanted],
        len(bad),
        len(chains),
        f"{state} chain",
    )
    outstanding, unnamed = _named(bad[:_MOST_NAMED], candidates)
    reasons = Counter(status.reason or "" for status in bad if state == "failed")
    after_end = {
        "repeated creates": sum(status.chain.repeated for status in chains),
        "late requests": sum(status.chain.late for status in chains),
    }
    return {
        "run": run.name,
        "chains": len(chains),
        "state": state,
        "count": len(bad),
        "sentence": why.sentence,
        "findings": [one.to_json() for one in why.findings],
        "reasons": dict(reasons.most_common()),
        "notes": dict(Counter(filter(None, (one.note_text for one in bad))).most_common()),
        "outstanding": dict(outstanding.most_common()),
        "unnamed": unnamed,
        "after_end": {what: count for what, count in after_end.items() if count},
        "tags": [status.chain.tag for status in bad[:_SHOWN]],
    }


def run_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of `explain_run` for people, a line each."""
    chains, count = plural(found["chains"], "chain"), found["count"]
    if not count:
        return [("run", f"no chain of {chains} of run {found['run']} has failed or is unfinished")]
    if found["state"] == "failed":
        have = "has failed" if count == 1 else "have failed"
    else:
        have = "is unfinished" if count == 1 else "are unfinished"
    facts = [("run", f"{count:,} of {chains} of run {found['run']} {have}")]
    facts.append(("why", found["sentence"]))
    facts += [
        ("", f"{one['share']:.0%} have {one['what']} ({one['share_of_all']:.0%} of all)")
        for one in found["findings"][1:_SHOWN]
    ]
    for name in ("reasons", "notes", "outstanding", "after_end"):
        lines = [f"{times:>6,}  {text}" for text, times in found[name].items()][:_SHOWN]
        if name == "outstanding" and found["unnamed"]:
            lines.append(f"{found['unnamed']:>6,}  units without a name: give --among")
        facts += listed(name.replace("_", " "), lines)
    return facts + listed("tags", found["tags"])


@dataclass(frozen=True)
class Cause:
    """Failed chains of one run with one reason, and what they have in common.

    The prefix is the run and a slash; empty for tags without one. The sentence is empty if nothing
    tells them from the others.
    """

    prefix: str
    reason: str
    count: int
    sentence: str


def causes(chains: Sequence[ChainStatus]) -> list[Cause]:
    """Group failed chains by run and reason; return the largest groups, of five chains or more."""
    runs: dict[str, list[tuple[str | None, dict[str, Any]]]] = defaultdict(list)
    failed: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for status in chains:
        head, slash, _ = status.chain.tag.partition("/")
        prefix = head + slash if slash else ""
        row = _properties(status.chain, len(prefix))
        reason = (status.reason or "") if status.chain.status == "failed" else None
        runs[prefix].append((reason, row))
        if reason is not None:
            failed[prefix, reason].append(row)
    found = []
    largest = sorted(failed.items(), key=lambda group: -len(group[1]))[:_SHOWN_CAUSES]
    for (prefix, reason), some in largest:
        if (count := len(some)) >= _LEAST:
            others = [row for other, row in runs[prefix] if other != reason]
            why = explain(some, others, count, len(runs[prefix]), "failed chain")
            told = why.sentence if why.findings or count == len(runs[prefix]) else ""
            found.append(Cause(prefix, reason, count, told))
    return found


def _properties(chain: Chain, begin: int) -> dict[str, Any]:
    """Return what chains are compared by: parts of the tag, the detail, sizes and times."""
    parts = chain.tag[begin:].split("/")
    properties: dict[str, Any] = {"units": chain.started, "created": _time(chain.created_at)}
    properties["nothing finished"] = chain.finished == 0
    detail = json.loads(chain.detail) if chain.detail else {}
    for name, value in detail.items():
        if isinstance(value, (str, int, float, bool)):
            properties[f"detail {name}"] = value
    return {f"part {n}": part for n, part in enumerate(parts, 2)} | properties


def _time(at: int | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at // 1000, timezone.utc)


def _named(
    chains: Sequence[ChainStatus], candidates: Sequence[Candidate]
) -> tuple[Counter[str], int]:
    """Count in how many chains units of a name are outstanding, and units without a name."""
    counts: Counter[str] = Counter()
    unnamed = 0
    for status in chains:
        names = names_in(status.outstanding, candidates, status.chain.tag)
        counts.update({*names.values()})
        unnamed += len(status.outstanding) - len(names)
    return counts, unnamed


def names_in(units: Sequence[int], candidates: Iterable[Candidate], tag: str) -> dict[int, str]:
    """Return the names of a chain's outstanding units, as far as they are found."""
    names = {
        int(unit, 16): name if isinstance(name, str) else json.dumps(name, ensure_ascii=False)
        for unit, name in names_of(units, candidates, tag).items()
        if name is not None
    }
    own = unit_id(tag)
    return {**names, own: ROOT} if own in names else names


def name_text(name: str) -> str:
    """Return a name of `names_in` for people: ``line 3``, or ``page 2 / line 3`` of a path."""
    if not name.startswith("["):
        return name
    steps = (step if isinstance(step, list) else [step] for step in json.loads(name))
    return " / ".join(" ".join(map(str, step)) for step in steps)


def candidates_in(lines: Iterable[str]) -> Iterator[Candidate]:
    """Yield the candidates of a file's lines, for `xorack.names_of`.

    A line is a name; one that is a whole number is also tried as an int. A JSON list is a path: the
    name at each level below the root, where a list within it is a name of several parts.
    """
    for number, line in enumerate(lines, 1):
        name = line.rstrip("\r\n")
        if name.startswith("["):
            yield _path(name, number)
        elif name:
            yield name
            if name.removeprefix("-").isdecimal() and name.isascii() and len(name) < 20:
                yield int(name)


def _path(text: str, line: int) -> Candidate:
    try:
        path: Any = json.loads(text)
    except (ValueError, RecursionError):
        path = None
    steps = [tuple(step) if isinstance(step, list) else step for step in path or ()]
    parts = [p for step in steps for p in (step if isinstance(step, tuple) else (step,))]
    if not parts or not all(type(part) in (str, int) for part in parts):
        raise ArgumentError(f"line {line}", text, "a name, or a JSON list of names")
    return steps
