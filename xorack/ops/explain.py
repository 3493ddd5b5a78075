"""Why chains failed: what those of a run have in common, and which of their units are missing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.client.names import Candidate, names_of
from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError
from xorack.core.explaining import Explanation, explain
from xorack.core.hashing import unit_id
from xorack.ops.run import Run
from xorack.ops.status import ChainStatus
from xorack.ops.text import plural

ROOT = "the chain's own unit: its first step did not end"
_MOST_CHAINS = 20_000
"""Chains whose properties are compared."""
_MOST_NAMED = 1_000
"""Failed chains whose outstanding units are named."""
_SHOWN = 10
_SHOWN_CAUSES = 5
_LEAST = 5
"""Failed chains that make a group: fewer are seen at a glance."""


@dataclass(frozen=True)
class RunExplanation:
    """Why chains of a run failed, or are unfinished.

    Attributes:
        run: The run's name.
        chains: How many chains it has.
        state: What is explained: ``failed`` or, if none has failed, ``unfinished``.
        count: How many chains that are.
        explanation: What they have in common, and the others have not.
        reasons: How many of them failed for a reason.
        notes: How many of them have a note that says so.
        outstanding: In how many of them units of a name are outstanding.
        unnamed: How many of them have outstanding units without a name.
        after_end: Requests that came after the end of any chain of the run.
        tags: The first of them.
    """

    run: str
    chains: int
    state: str
    count: int
    explanation: Explanation
    reasons: Counter[str]
    notes: Counter[str]
    outstanding: Counter[str]
    unnamed: int
    after_end: Counter[str]
    tags: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """How many chains of the run have failed or are unfinished, in words."""
        chains = plural(self.chains, "chain")
        if not self.count:
            return f"no chain of {chains} of run {self.run} has failed or is unfinished"
        have = "has failed" if self.state == "failed" else "is unfinished"
        if self.count > 1:
            have = "have failed" if self.state == "failed" else "are unfinished"
        return f"{self.count:,} of {chains} of run {self.run} {have}"

    def properties(self) -> list[tuple[str, str]]:
        """Return names and values for people, a line each."""
        groups = {
            "reasons": self.reasons,
            "notes": self.notes,
            "outstanding": self.outstanding,
            "after end": self.after_end,
        }
        lines = [("run", self.sentence)]
        if self.count:
            lines.append(("why", self.explanation.sentence))
            found = self.explanation.findings[1:_SHOWN]
            lines += [("", f"{f.missing:.0%} have {f.what} ({f.all:.0%} of all)") for f in found]
        for name, values in groups.items():
            for place, (text, times) in enumerate(values.most_common(_SHOWN)):
                lines.append(("" if place else name, f"{times:>6,}  {text}"))
        if self.unnamed:
            units = f"{self.unnamed:>6,}  units without a name: give --among"
            lines.append(("" if self.outstanding else "outstanding", units))
        lines += [("" if place else "tags", tag) for place, tag in enumerate(self.tags)]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `xorack explain --run --json` prints."""
        findings = self.explanation.findings
        return {
            "run": self.run,
            "chains": self.chains,
            "state": self.state,
            "count": self.count,
            "sentence": self.explanation.sentence,
            "findings": [
                {"what": f.what, "share": f.missing, "share_of_all": f.all, "lift": f.lift}
                for f in findings
            ],
            "reasons": dict(self.reasons.most_common()),
            "notes": dict(self.notes.most_common()),
            "outstanding": dict(self.outstanding.most_common()),
            "unnamed": self.unnamed,
            "after_end": dict(self.after_end),
            "tags": list(self.tags),
        }


def explain_run(
    store: DynamoDBStore, run: Run, candidates: Sequence[Candidate] = ()
) -> RunExplanation:
    """Read the chains of a run, and find out what those that failed have in common.

    Reads the whole table. The candidates are names that the steps may have given to units: see
    `xorack.names_of`.

    Raises:
        UnavailableError: A retry may help.
    """
    now = milliseconds()
    bad: list[ChainStatus] = []
    rows: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    after_end: Counter[str] = Counter()

    def invalid(_: NotAChainError) -> None:
        counts["invalid"] += 1

    chains = [ChainStatus(chain, now) for chain in store.scan(invalid, prefix=run.prefix)]
    counts.update(status.chain.status for status in chains)
    state = "failed" if counts["failed"] else "unfinished"
    wanted = ("failed",) if counts["failed"] else ("open", "pending")
    missing = []
    for status in chains:
        chain = status.chain
        after_end += Counter({"repeated creates": chain.repeated, "late requests": chain.late})
        is_wanted = chain.status in wanted
        if is_wanted:
            bad.append(status)
        if len(rows) < _MOST_CHAINS:
            rows.append(_properties(chain, len(run.prefix)))
            missing += rows[-1:] if is_wanted else []
    reasons = Counter(status.reason or "" for status in bad) if state == "failed" else Counter()
    notes = Counter(status.note_text for status in bad if status.note_text)
    outstanding, unnamed = _named(bad[:_MOST_NAMED], candidates)
    return RunExplanation(
        run.name, len(chains), state, len(bad),
        explain(missing, rows, len(bad), len(chains), f"{state} chain"),
        reasons, notes, outstanding, unnamed, after_end,
        tuple(status.chain.tag for status in bad[:_SHOWN]),
    )  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """Failed chains of one run, with one reason.

    Attributes:
        prefix: The run and a slash; empty for tags without one.
        reason: The reason.
        count: How many chains that are.
        sentence: What they have in common, and others of the run have not.
    """

    prefix: str
    reason: str
    count: int
    sentence: str


def causes(chains: Sequence[ChainStatus]) -> list[Cause]:
    """Group failed chains by run and reason; return the largest groups, of five chains or more."""
    runs: dict[str, list[tuple[ChainStatus, dict[str, Any]]]] = defaultdict(list)
    for status in chains:
        head, slash, _ = status.chain.tag.partition("/")
        prefix = head + slash if slash else ""
        runs[prefix].append((status, _properties(status.chain, len(prefix))))
    counts = Counter(
        (prefix, status.reason or "")
        for prefix, some in runs.items()
        for status, _ in some
        if status.chain.status == "failed"
    )
    found = []
    for (prefix, reason), count in counts.most_common(_SHOWN_CAUSES):
        if count < _LEAST:
            break
        some = runs[prefix]
        failed = [
            row
            for one, row in some
            if one.chain.status == "failed" and (one.reason or "") == reason
        ]
        why = explain(failed, [row for _, row in some], count, len(some), "failed chain")
        found.append(Cause(prefix, reason, count, why.sentence))
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


def names_in(units: Sequence[int], candidates: Iterable[Candidate], *root: str) -> dict[int, str]:
    """Return the names of outstanding units, as far as they are found, as in a file of names.

    `root` has the parts of the root's name: mostly the chain's tag.
    """
    names = {
        int(unit, 16): name if isinstance(name, str) else json.dumps(name, ensure_ascii=False)
        for unit, name in names_of(units, candidates, *root).items()
        if name is not None
    }
    own = unit_id(*root)
    return {**names, own: ROOT} if own in names else names
