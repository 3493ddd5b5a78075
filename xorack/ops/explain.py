"""Why chains failed: what those of a run have in common, and which of their units are missing."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from xorack.ops.reasons import Explanation, explain
from xorack.ops.run_chains import RunChains
from xorack.ops.status import ChainStatus
from xorack.ops.text import cut, listed, plural, span

ROOT = "the chain's own unit: its first step did not end"
_MAX_CHAINS = 20_000
"""Chains whose properties are compared."""
_MAX_NAMED = 1_000
"""Failed chains whose outstanding units are named."""
_MAX_COMPARED = 10_000
"""Names that are compared with those of outstanding units."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SHOWN = 10
_SHOWN_CAUSES = 5
_LEAST = 5
"""Failed chains that make a group: fewer are seen at a glance."""


def explain_run(
    store: DynamoDBStore,
    run: RunChains,
    candidates: Sequence[Candidate] = (),
    letters: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Read the chains of a run, and find out what those that failed have in common.

    Reads the whole table. The candidates are names that the steps may have given to units: see
    `xorack.names_of`. The letters are reasons of dead-lettered messages, by the tag of their chain.

    Returns:
        What `xorack explain --run --json` prints. ``state`` says what is explained: ``failed`` or,
        if none has failed, ``unfinished`` chains; ``count`` is their number. ``unnamed`` is the
        number of their outstanding units without a name. Texts that differ in numbers alone are
        counted together.
    """
    now = milliseconds()
    chains = [ChainStatus(one, now) for one in store.scan(lambda _: None, prefix=run.prefix)]
    state, wanted = "failed", {"failed"}
    if not any(status.chain.status == "failed" for status in chains):
        state, wanted = "unfinished", {"open", "pending"}
    bad = [status for status in chains if status.chain.status in wanted]
    rows: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [], []
    for one in chains[:_MAX_CHAINS]:
        row = _properties(one.chain, len(run.prefix))
        if letters:
            row["dead letter"] = letters.get(one.chain.tag)
        rows[one.chain.status not in wanted].append(row)
    why = explain(*rows, len(bad), len(chains), f"{state} chain")
    named = [_names(one, candidates) for one in bad[:_MAX_NAMED]]
    units = _explain_names(named, candidates)
    unnamed = sum(len(one.outstanding) for one in bad[:_MAX_NAMED]) - sum(map(len, named))
    reasons = (status.reason or "" for status in bad if state == "failed")
    after_end = {
        "repeated creates": sum(status.chain.repeated for status in chains),
        "late requests": sum(status.chain.late for status in chains),
    }
    late = sum(one.chain.late > 0 and one.reason == TIMED_OUT for one in bad)
    sentences = [why.sentence if why.findings or not units.sentence else "", units.sentence]
    if sentences[0]:
        sentences[1] = sentences[1][:1].lower() + sentences[1][1:]
    if late:
        sentences.append(
            f"{late:,} of them got requests after they had timed out: too short a time"
        )
    if unnamed and not candidates:
        sentences.append("the outstanding units have no names: give --among")
    return {
        "run": run.name,
        "chains": len(chains),
        "state": state,
        "count": len(bad),
        "sentence": "; ".join(filter(None, sentences)),
        "findings": [one.to_json() for one in why.findings],
        "name_findings": [one.to_json() for one in units.findings],
        "ages_ms": _ends(one.age_ms for one in bad),
        "silent_ms": _ends(
            (one.chain.ended_at or now) - one.chain.last_stamp_at
            for one in bad
            if one.chain.last_stamp_at is not None
        ),
        "reasons": _counted(reasons),
        "notes": _counted(filter(None, (one.note_text for one in bad))),
        "outstanding": dict(Counter(t for names in named for t in {*names.values()}).most_common()),
        "unnamed": unnamed,
        "dead_letters": _counted(letters[one.chain.tag] for one in bad if one.chain.tag in letters),
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
    facts = [("why", found["sentence"])] if found["sentence"] else []
    facts.append(("run", f"{count:,} of {chains} of run {found['run']} {have}"))
    more = [
        f"{one['share']:.0%} have {one['what']} ({one['share_of_all']:.0%} of all)"
        for one in (*found["findings"][1:], *found["name_findings"][1:])
    ]
    facts += listed("also", cut(more, _SHOWN))
    for name in ("ages_ms", "silent_ms"):
        if ends := found[name]:
            what = "age" if name == "ages_ms" else "last stamp"
            text = " to ".join(dict.fromkeys(map(span, ends)))
            facts.append((what, text if what == "age" else f"{text} before the end, or now"))
    for name in ("reasons", "notes", "outstanding", "dead_letters", "after_end"):
        text_of = name_text if name == "outstanding" else str
        lines = [f"{times:>6,}  {text_of(text)}" for text, times in found[name].items()]
        lines = cut(lines, _SHOWN)
        if name == "outstanding" and found["unnamed"]:
            unit = "unit" if found["unnamed"] == 1 else "units"
            lines.append(f"{found['unnamed']:>6,}  {unit} without a name: give --among")
        facts += listed(name.replace("_", " "), lines)
    rest = count - len(found["tags"])
    return facts + listed("tags", [*found["tags"], *([f"and {rest:,} more"] if rest else [])])


def _ends(values: Iterable[int | None]) -> list[int]:
    """Return the least and the most of times that are known; none of nothing."""
    known = [max(0, value) for value in values if value is not None]
    return [min(known), max(known)] if known else []


def _counted(texts: Iterable[str]) -> dict[str, int]:
    """Count texts, the commonest first; those that differ in numbers alone are one group."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for text in texts:
        groups[_NUMBER.sub("…", text)][text] += 1
    counts = Counter(
        {
            next(iter(some)) if len(some) == 1 else text: some.total()
            for text, some in groups.items()
        }
    )
    return dict(counts.most_common())


def _explain_names(
    named: Sequence[Mapping[int, str]], candidates: Sequence[Candidate]
) -> Explanation:
    """Find what tells the names of outstanding units from the other candidates of their chains."""
    missing = [text for names in named for text in names.values() if text != ROOT]
    if len(missing) < 2:
        return Explanation("")
    every = sorted({_text_of(one) for one in candidates})
    chosen, others = random.Random(0), list[str]()
    most = max(1, _MAX_COMPARED // len(named))
    for names in named:
        some = every if len(every) <= most else chosen.sample(every, most)
        others += {*some}.difference(names.values())
    count, total = len(missing), max(len(missing) + len(others), len(named) * len(every))
    missing = chosen.sample(missing, min(count, _MAX_COMPARED))
    if others:
        own, rest = ([_name_parts(text) for text in some] for some in (missing, others))
        why = explain(own, rest, count, total, "outstanding name")
        if why.findings:
            told = why.sentence.rpartition(" (")[0].replace("have name = ", "are ")
            share = f"{100 * why.findings[0].all:.0f} % of the names given"
            return Explanation(f"{told} ({share})", why.findings)
    parts = [[str(part) for part in _parts(text)] for text in missing]
    if len({*map(len, parts)}) > 1:
        return Explanation("")
    same = [some[0] if len({*some}) == 1 else "…" for some in zip(*parts, strict=True)]
    if {*same} == {"…"}:
        return Explanation("")
    return Explanation(f"All {count:,} outstanding names are {' '.join(same)}")


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
