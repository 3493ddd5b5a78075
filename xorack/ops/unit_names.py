"""Names of outstanding units: found among candidates, and compared with those of other units."""

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
"""Names of each kind that are compared; all are counted."""


def name_hint(candidates: Sequence[Candidate]) -> str:
    """Say what to do about outstanding units without a name among the candidates."""
    if not candidates:
        return "give --among"
    flat = any(isinstance(one, list) and len(one) > 1 for one in candidates)
    return "none of --among is theirs" + (
        ': child("line", 3) is [["line", 3]] there' if flat else ""
    )


def names_of_chain(status: ChainStatus, candidates: Sequence[Candidate]) -> dict[int, str]:
    """Return the names of a chain's outstanding units that are found or, of a window, known."""
    units = status.outstanding
    known = {unit: name for unit, name in status.partitions.items() if unit in units}
    return known | names_in(units, candidates, status.chain.tag)


def _text_of(name: Candidate) -> str:
    return name if isinstance(name, str) else json.dumps(name, ensure_ascii=False)


def names_in(units: Sequence[int], candidates: Iterable[Candidate], tag: str) -> dict[int, str]:
    """Return the names of a chain's outstanding units, as far as they are found."""
    names = {
        int(unit, 16): _text_of(name)
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

    A line is a name; one that is an integer is also tried as an int. A JSON list is a path: the
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
    with suppress(ValueError, RecursionError, TypeError):
        path = [tuple(step) if isinstance(step, list) else step for step in json.loads(text)]
        parts = [p for step in path for p in (step if isinstance(step, tuple) else (step,))]
        if parts and all(type(part) in (str, int) for part in parts):
            return path
    raise ArgumentError(f"line {line}", text, "a name, or a JSON list of names")


_NO_REASONS = Reasons(0, 0, (0, 0))


@dataclass(frozen=True)
class NameReasons:
    """What distinguishes the names of outstanding units, in words and as values."""

    sentence: str = ""
    reasons: Reasons = _NO_REASONS


def explain_names(
    named: Sequence[Mapping[int, str]], candidates: Sequence[Candidate]
) -> NameReasons:
    """Find what distinguishes the names of outstanding units from other candidates."""
    missing = [text for names in named for text in names.values() if text != ROOT]
    if len(missing) < 2:
        return NameReasons()
    every = sorted({_text_of(one) for one in candidates})
    chosen, others = random.Random(0), list[str]()
    most = max(1, _MAX_COMPARED // len(named))
    for names in named:
        some = every if len(every) <= most else chosen.sample(every, most)
        others += {*some}.difference(names.values())
    count, total = len(missing), max(len(missing) + len(others), len(named) * len(every))
    sample = chosen.sample(missing, min(count, _MAX_COMPARED))
    if others:
        own, rest = ([_name_parts(text) for text in some] for some in (sample, others))
        why = find_reasons(own, rest, count, total, "outstanding name")
        if why.findings:
            why = why if why.is_exact else _count_names(why, missing, named, every)
            return NameReasons(why.sentence, why)
    parts = [[str(part) for part in _parts(text)] for text in missing]
    columns = [*zip(*parts, strict=True)] if len({*map(len, parts)}) == 1 else []
    same = [some[0] if len({*some}) == 1 else "…" for some in columns]
    text = f"all {count:,} outstanding names are {' '.join(same)}"
    # The first part alone is the kind of unit: "part … …" says nothing.
    return NameReasons("" if {*(same[1:] or same)} <= {"…"} else text)


def _count_names(
    reasons: Reasons,
    missing: Sequence[str],
    named: Sequence[Mapping[int, str]],
    every: Sequence[str],
) -> Reasons:
    """Count the conditions over all names: those that are missing, and the others of each chain."""
    rows = {text: _name_parts(text) for text in {*every, *missing}}
    counts, given = [], {*every}
    for finding in reasons.findings:
        holds = {text for text, row in rows.items() if finding.condition.holds(row)}
        in_each = len(holds & given)
        own = sum(text in holds and text in given for names in named for text in {*names.values()})
        counts.append((sum(text in holds for text in missing), in_each * len(named) - own))
    return reasons.with_counts(counts)


def _parts(name: str) -> list[Any]:
    """Return the parts of a name of `names_in`, of all levels of a path."""
    path = json.loads(name) if name.startswith("[") else [name]
    return [part for step in path for part in (step if isinstance(step, list) else [step])]


def _name_parts(name: str) -> dict[str, Any]:
    """Return what names are compared by: their parts, and that of the parent."""
    parts = _parts(name)
    if len(parts) == 1:
        return {"name": parts[0]}
    path = json.loads(name)
    parent = {"parent": name_text(json.dumps(path[:-1]))} if len(path) > 1 else {}
    return {f"part {n}": part for n, part in enumerate(parts, 1)} | parent
