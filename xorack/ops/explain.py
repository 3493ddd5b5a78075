"""Explains why chains of a run failed or do not end, by causes and common properties."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.client.names import Candidate
from xorack.core.chain import Chain
from xorack.core.reasons import Reasons, find_reasons
from xorack.core.text import cut, listed, plural
from xorack.ops.clues import Clue, clues_of
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.run_chains import RunChains
from xorack.ops.similar_texts import cause_of, count_causes, shared_text
from xorack.ops.status import ChainStatus
from xorack.ops.unit_names import NameReasons, explain_names, name_hint, name_text, names_of_chain

_MAX_NAMED = 1_000
"""The most failed chains whose outstanding units are named."""
_MAX_COMPARED = 10_000
"""The most chains of each side that are compared. All of them are counted."""
_TIMES = frozenset({"created"})
"""Properties for which only a range is a reason, because a single second is none."""
_SHOWN = 10
_MAX_CAUSES = 5
_MIN_GROUP = 5
"""The least failed chains for a group on a page, because fewer are easy to survey."""
_NEARLY = 0.8
"""The share of chains with a note or a dead letter above which their counts add nothing."""


@dataclass(frozen=True)
class Group:
    """Chains with one cause: failed chains with one reason, or unfinished chains.

    Attributes:
        reason: The text that their reasons share. Empty for unfinished chains.
        reasons: The
            conditions that distinguish them from all other chains of the run.
        notes, dead_letters: Texts about these chains, with the numbers of chains.
    """

    reason: str
    chains: Sequence[ChainStatus]
    reasons: Reasons
    notes: Counter[str]
    dead_letters: Counter[str]

    @cached_property
    def clues(self) -> list[tuple[Clue, int]]:
        """The clues from the chains' counts and times, with the numbers of chains."""
        by_kind: dict[str, list[Clue]] = defaultdict(list)
        for status in self.chains:
            for clue in clues_of(status):
                by_kind[clue.kind].append(clue)
        shared = [
            (Clue(c[0].kind, shared_text(x.text for x in c)), len(c)) for c in by_kind.values()
        ]
        return sorted(shared, key=lambda pair: -pair[1])

    def lines(self) -> list[str]:
        """Return why these chains failed or do not end, the strongest statement first.

        Texts by senders and the consumer come first, then the properties that the chains share.
        Counts and times come last. Counts and times are left out if most chains have texts.
        """
        count = len(self.chains)
        words = [
            f"{self._share(number)} {name}: {text}"
            for name, texts in (("a note", self.notes), ("a dead letter", self.dead_letters))
            for text, number in [*texts.items()][:1]
        ]
        lines = [line for line in words if line]
        if self.reasons.findings:
            lines.append(self.reasons.sentence)
        if max(self.notes.total(), self.dead_letters.total()) < _NEARLY * count:
            lines += [
                clue.text if number == count else f"{number:,} of {count:,}: {clue.text}"
                for clue, number in self.clues
            ]
        return lines

    def _share(self, number: int) -> str:
        count = len(self.chains)
        if number >= count:
            return "each has" if count > 1 else "it has"
        return f"{number:,} of {count:,} have"

    def to_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "count": len(self.chains),
            "findings": findings_of(self.reasons),
            "clues": [
                {"kind": clue.kind, "text": clue.text, "chains": number}
                for clue, number in self.clues
            ],
            "notes": self.notes,
            "dead_letters": self.dead_letters,
        }


@dataclass(frozen=True)
class RunExplanation:
    """Why chains of a run failed or, if none has failed, have not ended."""

    run: str
    state: str
    chains: Sequence[ChainStatus]
    bad: Sequence[ChainStatus]
    groups: Sequence[Group]
    named: Sequence[Mapping[int, str]]
    names: NameReasons
    letters: Sequence[DeadMessage]
    hint: str

    @property
    def after_end(self) -> dict[str, int]:
        """The numbers of requests after the end of the run's chains."""
        counts = {
            "repeated creates": sum(status.chain.tombstone.repeated for status in self.chains),
            "late requests": sum(status.chain.tombstone.late for status in self.chains),
        }
        return {name: count for name, count in counts.items() if count}

    @property
    def unnamed(self) -> int:
        """The number of outstanding units without a name, in the chains with a look-up of names."""
        units = sum(len(status.outstanding) for status in self.bad[: len(self.named)])
        return units - sum(map(len, self.named))

    @cached_property
    def outstanding(self) -> Counter[str]:
        """Names of outstanding units with the numbers of chains."""
        counts = Counter(text for names in self.named for text in {*names.values()})
        return Counter(dict(counts.most_common()))

    @property
    def why(self) -> list[str]:
        """The possible causes, by the reason of the failure if there are several reasons."""
        lines = []
        for group in self.groups[:_MAX_CAUSES]:
            head = f"{len(group.chains):,} {group.reason}: " if len(self.groups) > 1 else ""
            lines += [head + line for line in group.lines()]
        if self.names.sentence:
            lines.append(self.names.sentence)
        if self.unnamed and not any(self.named):
            lines.append(f"the outstanding units have no names: {self.hint}")
        if not lines and self.bad:
            lines.append(self.groups[0].reasons.sentence)
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return what ``xorack explain --run --json`` prints."""
        return {
            "run": self.run,
            "chains": len(self.chains),
            "state": self.state,
            "count": len(self.bad),
            "why": self.why,
            "groups": [group.to_dict() for group in self.groups],
            "name_findings": findings_of(self.names.reasons),
            "outstanding": self.outstanding,
            "unnamed": self.unnamed,
            "name_hint": self.hint if self.unnamed and any(self.named) else "",
            "dead_letters": count_causes(map(letter_text, self.letters)),
            "after_end": self.after_end,
            "tags": [status.chain.tag for status in self.bad[:_SHOWN]],
        }

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for people, a line each."""
        chains = f"{plural(len(self.chains), 'chain')} of run {self.run}"
        if not self.bad:
            none = "none has failed or is unfinished" if self.chains else "is the name correct?"
            return [("run", f"{chains}: {none}"), *self._facts_after_end()]
        facts = listed("why", self.why)
        verb = "have failed" if self.state == "failed" else "have not ended yet"
        facts.append(("run", f"{len(self.bad):,} of {chains} {verb}"))
        compared = [*(group.reasons for group in self.groups), self.names.reasons]
        more = [each.describe(finding) for each in compared for finding in each.findings[1:]]
        facts += listed("also", cut(more, _SHOWN))
        if self.state == "failed":
            reasons = Counter({group.reason: len(group.chains) for group in self.groups})
            facts += _counted_lines("reasons", reasons)
        facts += _counted_lines("notes", count_causes(_notes_of(self.bad)))
        facts += self._outstanding_lines()
        tags = [status.chain.tag for status in self.bad]
        remaining = listed("tags", cut(tags, _SHOWN, len(tags)))
        return [*facts, *self._facts_after_end(), *remaining]

    def _facts_after_end(self) -> list[tuple[str, str]]:
        """Return facts on dead letters and late requests, which matter even for acked chains."""
        return [
            *_counted_lines("dead letters", count_causes(map(letter_text, self.letters))),
            *listed("after end", [plural(n, name[:-1]) for name, n in self.after_end.items()]),
        ]

    def _outstanding_lines(self) -> list[tuple[str, str]]:
        texts = Counter({name_text(name): count for name, count in self.outstanding.items()})
        lines = [value for _, value in _counted_lines("outstanding", texts)]
        if self.unnamed:
            hint = self.hint if any(self.named) else ""
            unit = "unit without a name" if self.unnamed == 1 else "units without a name"
            lines.append(f"{self.unnamed:>6,}  {': '.join(filter(None, (unit, hint)))}")
        return listed("outstanding", lines)


def explain_run(
    store: DynamoDBStore,
    run: RunChains,
    candidates: Sequence[Candidate] = (),
    letters: Sequence[DeadMessage] = (),
) -> RunExplanation:
    """Read the entire table, and explain the chains of a run.

    The candidates are names that steps may have given to units; see `xorack.names_of`. The letters
    are dead letters of the run's chains.
    """
    now = milliseconds()
    chains = [ChainStatus(chain, now) for chain in store.scan(lambda _: None, prefix=run.prefix)]
    return explain_chains(run, chains, candidates, letters)


def explain_chains(
    run: RunChains,
    chains: Sequence[ChainStatus],
    candidates: Sequence[Candidate] = (),
    letters: Sequence[DeadMessage] = (),
) -> RunExplanation:
    """Explain the failed chains of a run, or the open chains if no chain has failed."""
    bad = [status for status in chains if status.chain.status == "failed"]
    state = "failed" if bad else "unfinished"
    bad = bad or [status for status in chains if not status.chain.final]
    groups: dict[str, list[ChainStatus]] = defaultdict(list)
    for status in bad:
        groups[cause_of(status.reason or "") if state == "failed" else ""].append(status)
    largest = sorted(groups.values(), key=lambda group: -len(group))
    named = [names_of_chain(status, candidates) for status in bad[:_MAX_NAMED]]
    texts = {tag: letter_text(letter) for letter in letters for tag in letter.tags}
    return RunExplanation(
        run=run.name,
        state=state,
        chains=chains,
        bad=bad,
        groups=[_group(state, group, chains, len(run.prefix), texts) for group in largest],
        named=named,
        names=explain_names(named, candidates),
        letters=letters,
        hint=name_hint(candidates),
    )


def _group(
    state: str,
    group: Sequence[ChainStatus],
    chains: Sequence[ChainStatus],
    begin: int,
    letters: Mapping[str, str],
) -> Group:
    """Compare chains of one cause with all other chains of their run."""

    def row_of(status: ChainStatus) -> dict[str, Any]:
        properties = _properties(status.chain, begin)
        tag = status.chain.tag
        return properties | ({"dead letter": letters.get(tag)} if letters else {})

    tags = {status.chain.tag for status in group}
    remaining = [status for status in chains if status.chain.tag not in tags]
    own, others = (
        [row_of(status) for status in side[:_MAX_COMPARED]] for side in (group, remaining)
    )
    word = f"{state} chain"
    reasons = find_reasons(own, others, len(group), len(chains), word, ranges=_TIMES)
    if not reasons.is_exact:
        reasons = reasons.counted_in(map(row_of, group), map(row_of, remaining))
    return Group(
        reason=shared_text(status.reason or "" for status in group) if state == "failed" else "",
        chains=group,
        reasons=reasons,
        notes=count_causes(_notes_of(group)),
        dead_letters=count_causes(letters[tag] for tag in sorted(tags) if tag in letters),
    )


def letter_text(letter: DeadMessage) -> str:
    """Return why a message is a dead letter, with its kind."""
    return f"{letter.kind}: {letter.reason}"


def _notes_of(chains: Iterable[ChainStatus]) -> Iterable[str]:
    return filter(None, (status.note_text for status in chains))


def _counted_lines(name: str, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the first texts with their counts, a line each."""
    return listed(name, cut([f"{n:>6,}  {text}" for text, n in counts.items()], _SHOWN))


def findings_of(reasons: Reasons) -> list[dict[str, Any]]:
    """Return the findings for JSON: each condition, and how many chains on each side meet it."""
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


@dataclass(frozen=True)
class Cause:
    """Failed chains of one run with one cause, and the properties that they share.

    The prefix is the run with a slash, or empty for tags without a run. `key` is the result of
    `cause_of`. The sentence is empty if no property distinguishes these chains from others.
    """

    prefix: str
    key: str
    reason: str
    count: int
    sentence: str


def causes(chains: Sequence[ChainStatus]) -> list[Cause]:
    """Group failed chains by run and cause. Return the largest groups, of at least five chains."""
    runs: dict[str, list[ChainStatus]] = defaultdict(list)
    failed: dict[tuple[str, str], list[ChainStatus]] = defaultdict(list)
    for status in chains:
        prefix = run_prefix(status.chain.tag)
        runs[prefix].append(status)
        if status.chain.status == "failed":
            failed[prefix, cause_of(status.reason or "")].append(status)
    result = []
    largest = sorted(failed.items(), key=lambda item: -len(item[1]))[:_MAX_CAUSES]
    for (prefix, key), group in largest:
        if len(group) >= _MIN_GROUP:
            compared = _group("failed", group, runs[prefix], len(prefix), {})
            lines = compared.lines()
            result.append(Cause(prefix, key, compared.reason, len(group), "; ".join(lines[:2])))
    return result


def run_prefix(tag: str) -> str:
    """Return the run of a tag with its slash; empty for a tag without a run."""
    run, slash, _ = tag.partition("/")
    return run + slash if slash else ""


def _properties(chain: Chain, begin: int) -> dict[str, Any]:
    """Return the properties by which chains are compared: parts of the tag, detail and times."""
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
