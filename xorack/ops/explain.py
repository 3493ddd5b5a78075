"""Why chains failed: what those of a run have in common, and which of their units are missing."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.client.names import Candidate, names_of
from xorack.core.chain import TIMED_OUT, Chain
from xorack.core.errors import ArgumentError
from xorack.core.hashing import unit_id
from xorack.core.reasons import Reasons, find_reasons
from xorack.core.text import cut, listed, plural, span
from xorack.ops.run_chains import RunChains
from xorack.ops.status import ChainStatus

ROOT = "the chain's own unit: its first step did not end"
_MAX_NAMED = 1_000
"""Failed chains whose outstanding units are named."""
_MAX_COMPARED = 10_000
"""Chains of each kind that are compared, and names of each kind; all are counted."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_TIMES = frozenset({"created"})
"""Properties that only a range tells: a single second is no reason."""
_SHOWN = 10
_MAX_CAUSES = 5
_MIN_GROUP = 5
"""Failed chains that make a group: fewer are seen at a glance."""


def explain_run(
    store: DynamoDBStore,
    run: RunChains,
    candidates: Sequence[Candidate] = (),
    letters: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Read the entire table; return what `xorack explain --run --json` prints of a run's chains.

    The candidates are names that the steps may have given to units: see `xorack.names_of`. The
    letters are reasons of dead-lettered messages, by the tag of their chain. ``state`` says what is
    explained: ``failed`` or, if none has failed, ``unfinished`` chains; ``count`` is their number.
    """
    now = milliseconds()
    chains = [ChainStatus(one, now) for one in store.scan(lambda _: None, prefix=run.prefix)]
    state, wanted = "failed", {"failed"}
    if not any(one.chain.status == "failed" for one in chains):
        state, wanted = "unfinished", {"open", "pending"}
    bad = [one for one in chains if one.chain.status in wanted]
    tags = [one.chain.tag for one in bad]
    why = _reasons_of_chains(chains, wanted, f"{state} chain", len(run.prefix), letters)
    named = [_names(one, candidates) for one in bad[:_MAX_NAMED]]
    units = _explain_names(named, candidates)
    unnamed = sum(len(one.outstanding) for one in bad[:_MAX_NAMED]) - sum(map(len, named))
    sentences = [why.sentence if why.says_something or not units.sentence else "", units.sentence]
    if late := sum(one.chain.tombstone.late > 0 and one.reason == TIMED_OUT for one in bad):
        sentences.append(f"{late:,} of them got requests after their time-out: it is too short")
    if bad and all(one.chain.counts.finished <= 1 < one.chain.counts.started for one in bad):
        sentences.append("no child's work finished: see the workers' logs, such as `token refused`")
    dead = _counted(letters[tag] for tag in tags if tag in letters)
    if bad and not why.findings and dead.total() == len(bad):
        sentences.append(f"each chain has a dead letter: {next(iter(dead))}")
    if unnamed and not any(named):
        sentences.append(f"the outstanding units have no names: {name_hint(candidates)}")
    after_end = {
        "repeated creates": sum(one.chain.tombstone.repeated for one in chains),
        "late requests": sum(one.chain.tombstone.late for one in chains),
    }
    return {
        "run": run.name,
        "chains": len(chains),
        "state": state,
        "count": len(bad),
        "sentence": "; ".join(filter(None, sentences)),
        "findings": _findings(why),
        "name_findings": _findings(units.reasons),
        "ages_ms": _ends(one.age_ms for one in bad),
        "silent_ms": _ends(
            (one.chain.ended_at or now) - one.chain.last_stamp_at
            for one in bad
            if one.chain.last_stamp_at is not None
        ),
        "reasons": _counted(one.reason or "" for one in bad if state == "failed"),
        "notes": _counted(filter(None, (one.note_text for one in bad))),
        "outstanding": dict(Counter(t for names in named for t in {*names.values()}).most_common()),
        "unnamed": unnamed,
        "name_hint": name_hint(candidates) if unnamed and any(named) else "",
        "dead_letters": dead,
        "after_end": {what: count for what, count in after_end.items() if count},
        "tags": tags[:_SHOWN],
    }


def run_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of `explain_run` for people, a line each."""
    chains, count = f"{plural(found['chains'], 'chain')} of run {found['run']}", found["count"]
    if not count:
        none = "none has failed or is unfinished" if found["chains"] else "is the name right?"
        return [("run", f"{chains}: {none}")]
    facts = [("why", found["sentence"])] if found["sentence"] else []
    verb = "have failed" if found["state"] == "failed" else "have not ended yet"
    facts.append(("run", f"{count:,} of {chains} {verb}"))
    more = [
        f"{one['condition']}: {one['missing']:,} of {one['of_missing']:,}, "
        f"{one['others']:,} of {one['of_others']:,} others"
        for one in (*found["findings"][1:], *found["name_findings"][1:])
    ]
    facts += listed("also", cut(more, _SHOWN))
    for name, what, rest in (
        ("ages_ms", "age", ""),
        ("silent_ms", "last stamp", " before the end" if found["state"] == "failed" else " ago"),
    ):
        if ends := found[name]:
            facts.append((what, " to ".join(dict.fromkeys(map(span, ends))) + rest))
    for name in ("reasons", "notes", "outstanding", "dead_letters", "after_end"):
        text_of = name_text if name == "outstanding" else str
        lines = cut([f"{n:>6,}  {text_of(text)}" for text, n in found[name].items()], _SHOWN)
        if name == "outstanding" and (unnamed := found["unnamed"]):
            unit = "unit" if unnamed == 1 else "units"
            hint = ": ".join(filter(None, (f"{unit} without a name", found["name_hint"])))
            lines.append(f"{unnamed:>6,}  {hint}")
        facts += listed(name.replace("_", " "), lines)
    return facts + listed("tags", cut(found["tags"], _SHOWN, count))


def name_hint(candidates: Sequence[Candidate]) -> str:
    """Say what to do about outstanding units without a name among the candidates."""
    if not candidates:
        return "give --among"
    flat = any(isinstance(one, list) and len(one) > 1 for one in candidates)
    return "none of --among is theirs" + (
        ': child("line", 3) is [["line", 3]] there' if flat else ""
    )


def _ends(values: Iterable[int | None]) -> list[int]:
    """Return the least and the most of times that are known; nothing if none is."""
    known = [max(0, value) for value in values if value is not None]
    return [min(known), max(known)] if known else []


def _counted(texts: Iterable[str]) -> Counter[str]:
    """Count texts, the commonest first; those that differ in numbers alone are one group."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for text in texts:
        groups[_NUMBER.sub("…", text)][text] += 1
    counts = {
        next(iter(some)) if len(some) == 1 else text: some.total() for text, some in groups.items()
    }
    return Counter(dict(Counter(counts).most_common()))


def _reasons_of_chains(
    chains: Sequence[ChainStatus],
    wanted: Collection[str],
    word: str,
    begin: int,
    letters: Mapping[str, str],
) -> Reasons:
    """Return what distinguishes the chains of these statuses, counted over all chains."""

    def row_of(status: ChainStatus) -> dict[str, Any]:
        properties = _properties(status.chain, begin)
        tag = status.chain.tag
        return properties | ({"dead letter": letters.get(tag)} if letters else {})

    bad = [status for status in chains if status.chain.status in wanted]
    rest = [status for status in chains if status.chain.status not in wanted]
    some, others = ([row_of(status) for status in side[:_MAX_COMPARED]] for side in (bad, rest))
    reasons = find_reasons(some, others, len(bad), len(chains), word, ranges=_TIMES)
    return reasons if reasons.is_exact else reasons.counted_in(map(row_of, bad), map(row_of, rest))


def _findings(reasons: Reasons) -> list[dict[str, Any]]:
    """Return the findings for JSON: a condition, and how many on both sides meet it."""
    missing, others = reasons.compared
    return [
        {
            "condition": str(finding.condition),
            "missing": finding.missing,
            "of_missing": missing,
            "others": finding.others,
            "of_others": others,
        }
        for finding in reasons.findings
    ]


_NO_REASONS = Reasons(0, 0, (0, 0))


@dataclass(frozen=True)
class _NameReasons:
    """What distinguishes the names of outstanding units, in words and as values."""

    sentence: str = ""
    reasons: Reasons = _NO_REASONS


def _explain_names(
    named: Sequence[Mapping[int, str]], candidates: Sequence[Candidate]
) -> _NameReasons:
    """Find what distinguishes the names of outstanding units from other candidates."""
    missing = [text for names in named for text in names.values() if text != ROOT]
    if len(missing) < 2:
        return _NameReasons()
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
            return _NameReasons(why.sentence, why)
    parts = [[str(part) for part in _parts(text)] for text in missing]
    columns = [*zip(*parts, strict=True)] if len({*map(len, parts)}) == 1 else []
    same = [some[0] if len({*some}) == 1 else "…" for some in columns]
    text = f"all {count:,} outstanding names are {' '.join(same)}"
    # The first part alone is the kind of unit: "part … …" says nothing.
    return _NameReasons("" if {*(same[1:] or same)} <= {"…"} else text)


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
    for status in chains:
        head, slash, _ = status.chain.tag.partition("/")
        prefix = head + slash if slash else ""
        reason = (status.reason or "") if status.chain.status == "failed" else None
        runs[prefix].append((reason, _properties(status.chain, len(prefix))))
    counts = Counter((p, r) for p, rows in runs.items() for r, _ in rows if r is not None)
    found = []
    for (prefix, reason), count in counts.most_common(_MAX_CAUSES):
        if count >= _MIN_GROUP:
            rows = runs[prefix]
            own = [row for other, row in rows if other == reason]
            rest = [row for other, row in rows if other != reason]
            why = find_reasons(own, rest, count, len(rows), "failed chain", ranges=_TIMES)
            sentence = why.sentence if why.says_something else ""
            found.append(Cause(prefix, reason, count, sentence))
    return found


def _properties(chain: Chain, begin: int) -> dict[str, Any]:
    """Return what chains are compared by: parts of the tag, the detail, sizes and times."""
    parts = chain.tag[begin:].split("/")
    created = chain.created_at and datetime.fromtimestamp(chain.created_at // 1000, timezone.utc)
    detail = json.loads(chain.detail) if chain.detail else {}
    return {
        **{f"part {n}": part for n, part in enumerate(parts, 2)},
        "units": chain.counts.started,
        "created": created,
        "nothing finished": chain.counts.finished == 0,
        **{f"detail {n}": v for n, v in detail.items() if isinstance(v, (str, int, float, bool))},
    }


def _names(status: ChainStatus, candidates: Sequence[Candidate]) -> dict[int, str]:
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
