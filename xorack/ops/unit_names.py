"""Finds the names of outstanding units among candidates, and compares them with other names."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from xorack.client.names import Candidate, names_of
from xorack.core.errors import ArgumentError
from xorack.core.hashing import unit_id
from xorack.core.reasons import Reasons, find_reasons
from xorack.ops.status import ChainStatus

ROOT = "the chain's own unit: its first step did not end"
_MAX_COMPARED = 10_000
"""The most names of each kind that are compared. All of them are counted."""


def name_hint(candidates: Sequence[Candidate]) -> str:
    """Return advice for outstanding units that no candidate matches."""
    if not candidates:
        return "pass candidates with --among"
    flat = any(isinstance(each, list) and len(each) > 1 for each in candidates)
    return "no --among candidate matches" + (
        ': child("line", 3) is [["line", 3]] there' if flat else ""
    )


def names_of_chain(status: ChainStatus, candidates: Sequence[Candidate]) -> dict[int, str]:
    """Return the known names of a chain's outstanding units: candidates, or partitions of a log."""
    units = status.outstanding
    known = {unit: name for unit, name in status.partitions.items() if unit in units}
    return known | names_in(units, candidates, status.chain.tag)


def _text_of(name: Candidate) -> str:
    return name if isinstance(name, str) else json.dumps(name, ensure_ascii=False)


def names_in(units: Sequence[int], candidates: Iterable[Candidate], tag: str) -> dict[int, str]:
    """Return the names of the chain's outstanding units, as far as candidates match them."""
    names = {
        int(unit, 16): _text_of(name)
        for unit, name in names_of(units, candidates, tag).items()
        if name is not None
    }
    own = unit_id(tag)
    return {**names, own: ROOT} if own in names else names


def name_text(name: str) -> str:
    """Return a name of `names_in` for people: ``line 3``, or for a path ``page 2 / line 3``."""
    if not name.startswith("["):
        return name
    steps = (step if isinstance(step, list) else [step] for step in json.loads(name))
    return " / ".join(" ".join(map(str, step)) for step in steps)


def candidates_in(lines: Iterable[str]) -> Iterator[Candidate]:
    """Yield the candidates in a file's lines, for `xorack.names_of`.

    A line is a name. If it is an integer, it is also tried as an int. A JSON list is a path: the
    names on each level below the root, where an inner list is a name of several parts.
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
    with suppress(ValueError, RecursionError, TypeError):
        path = [tuple(step) if isinstance(step, list) else step for step in json.loads(text)]
        parts = [p for step in path for p in (step if isinstance(step, tuple) else (step,))]
        if parts and all(type(part) in (str, int) for part in parts):
            return path
    raise ArgumentError(f"line {line}", text, "a name, or a JSON list of names")


_NO_REASONS = Reasons(0, 0, (0, 0))


@dataclass(frozen=True)
class NameReasons:
    """The conditions that distinguish the names of outstanding units, in words and as values."""

    sentence: str = ""
    reasons: Reasons = _NO_REASONS


def explain_names(
    named: Sequence[Mapping[int, str]], candidates: Sequence[Candidate]
) -> NameReasons:
    """Find the conditions that distinguish the names of outstanding units from other candidates."""
    missing = [text for names in named for text in names.values() if text != ROOT]
    if len(missing) < 2:
        return NameReasons()
    every = sorted({_text_of(candidate) for candidate in candidates})
    chosen, others = random.Random(0), list[str]()
    most = max(1, _MAX_COMPARED // len(named))
    for names in named:
        drawn = every if len(every) <= most else chosen.sample(every, most)
        others += {*drawn}.difference(names.values())
    count, total = len(missing), max(len(missing) + len(others), len(named) * len(every))
    sample = chosen.sample(missing, min(count, _MAX_COMPARED))
    if others:
        own, rest = ([_name_parts(text) for text in side] for side in (sample, others))
        why = find_reasons(own, rest, count, total, "outstanding name")
        if why.findings:
            why = why if why.is_exact else _count_names(why, missing, named, every)
            return NameReasons(why.sentence, why)
    parts = [[str(part) for part in _parts(text)] for text in missing]
    columns = [*zip(*parts, strict=True)] if len({*map(len, parts)}) == 1 else []
    same = [column[0] if len({*column}) == 1 else "…" for column in columns]
    text = f"all {count:,} outstanding names are {' '.join(same)}"
    # If only the first part of the names is equal, which is the kind of unit, the sentence would
    # say nothing.
    return NameReasons("" if {*(same[1:] or same)} <= {"…"} else text)


def _count_names(
    reasons: Reasons,
    missing: Sequence[str],
    named: Sequence[Mapping[int, str]],
    every: Sequence[str],
) -> Reasons:
    """Count the conditions over all names: missing names, and the other names of each chain."""
    rows = {text: _name_parts(text) for text in {*every, *missing}}
    counts, known = [], {*every}
    for finding in reasons.findings:
        holds = {text for text, row in rows.items() if finding.condition.holds(row)}
        matches = len(holds & known)
        own = sum(text in holds and text in known for names in named for text in {*names.values()})
        counts.append((sum(text in holds for text in missing), matches * len(named) - own))
    return reasons.with_counts(counts)


def _parts(name: str) -> list[Any]:
    """Return the parts of a name of `names_in`, on all levels of a path."""
    path = json.loads(name) if name.startswith("[") else [name]
    return [part for step in path for part in (step if isinstance(step, list) else [step])]


def _name_parts(name: str) -> dict[str, Any]:
    """Return the properties by which names are compared: their parts and their parents' parts."""
    parts = _parts(name)
    if len(parts) == 1:
        return {"name": parts[0]}
    path = json.loads(name)
    parent = {"parent": name_text(json.dumps(path[:-1]))} if len(path) > 1 else {}
    return {f"part {n}": part for n, part in enumerate(parts, 1)} | parent
