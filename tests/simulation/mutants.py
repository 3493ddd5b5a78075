"""Broken versions of the code, which the simulation must catch.

A mutant edits the source of one or more functions. The replaced text must occur exactly once, so
that no mutant outlives the code that it breaks. The function object stays and gets the code of the
edited source: every module that imported it runs the mutant.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, NamedTuple

from xorack.acker.chain_writer import ChainWriter, _Part
from xorack.acker.consumer import Consumer
from xorack.acker.outbox import Outbox
from xorack.acker.sweeper import Sweeper
from xorack.aws import dynamodb_store
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.core import event, transitions


class Edit(NamedTuple):
    """An edit of a function's source; new lines are indented as the first line of `old`."""

    function: Callable[..., Any]
    old: str
    new: str


def _edited_code(function: Callable[..., Any], edits: list[Edit]) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    name = function.__qualname__
    for _, old, new in edits:
        assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
        before = source[: source.index(old)].rpartition("\n")[2]
        indent = before if before.isspace() else ""
        source = source.replace(old, new.replace("\n", "\n" + indent))
    namespace = dict(function.__globals__)
    flags = __future__.annotations.compiler_flag
    exec(compile(source, f"<mutant of {name}>", "exec", flags, True), namespace)
    return namespace[function.__name__].__code__


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Run a mutant; None runs the code itself."""
    edits = MUTANTS[name] if name else []
    with ExitStack() as stack:
        for function in {edit.function for edit in edits}:
            code = _edited_code(function, [edit for edit in edits if edit.function is function])
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = code
        yield


MUTANTS: dict[str, tuple[Edit, ...]] = {
    "the mark is written after the XOR": (
        Edit(
            _Part._attempt,
            "self.store.write(chain, after)",
            "from dataclasses import replace\n"
            "bare = replace(after, marks=chain.marks if chain else b'')\n"
            "self.store.write(chain, bare)\n"
            "after = replace(after, version=after.version + 1)\n"
            "self.store.write(bare, after)",
        ),
    ),
    "the mark is written before the XOR": (
        Edit(
            _Part._attempt,
            "self.store.write(chain, after)",
            "from dataclasses import replace\n"
            "if chain is not None:\n"
            "    marked = replace(\n"
            "        chain, marks=after.marks, spilled=after.spilled, version=after.version\n"
            "    )\n"
            "    self.store.write(chain, marked)\n"
            "    chain, after = marked, replace(after, version=after.version + 1)\n"
            "self.store.write(chain, after)",
        ),
    ),
    "requests are folded before duplicates are dropped": (
        Edit(
            transitions.apply,
            "if before is not None:",
            "if before is not None and all(m[:12] in seen for m in marks):",
        ),
    ),
    "a duplicate within a batch is not dropped": (
        Edit(transitions.apply, "seen[key] = checksum", "pass"),
    ),
    "the event is published before the state is written": (
        Edit(
            DynamoDBStore.write,
            "new = self._encode(after)",
            "from xorack.aws.eventbridge import EventBus\n"
            "from xorack.core.retry import RetryPolicy\n"
            "if after.final and not (before and before.final):\n"
            "    once = RetryPolicy(attempts=1)\n"
            "    EventBus('bus', self.client, policy=once).publish([after])\n"
            "new = self._encode(after)",
        ),
    ),
    "no event is pending, whoever ends the chain publishes it": (
        Edit(transitions._run, '"event_pending": True', '"event_pending": False'),
        Edit(
            Consumer._write_chains,
            "applied.chain.event_pending:",
            "applied.chain.final and any(kind == 'applied' for _, kind, _ in applied.outcomes):",
        ),
        Edit(
            Sweeper._sweep_page, "if after.event_pending:", "if after.final and not before.final:"
        ),
    ),
    "the event is marked as published before it is published": (
        Edit(
            Outbox.publish,
            "failures = self.publisher.publish(chains)",
            "for chain in chains:\n"
            "    self._mark_published(chain)\n"
            "failures = self.publisher.publish(chains)",
        ),
    ),
    "failed entries of PutEvents are ignored": (
        Edit(EventBus._put_events, 'if not response.get("FailedEntryCount"):', "if True:"),
    ),
    "each copy of an event has another id": (
        Edit(event.event_id, "chain.ended_at]", "chain.ended_at, __import__('uuid').uuid4().hex]"),
    ),
    "a chain is deleted at zero": (
        Edit(
            DynamoDBStore.write,
            "new = self._encode(after)",
            "if after.status == 'acked' and not after.event_pending:\n"
            "    self._call('delete_item', Key=self._key(after.tag))\n"
            "    return\n"
            "new = self._encode(after)",
        ),
    ),
    "a late request is applied to a finished chain": (
        Edit(transitions.apply, 'if verdict == "late":', "if False:"),
    ),
    "a due chain is failed though its deadline moved": (
        Edit(
            transitions._is_late,
            "return deadline is not None and deadline <= now",
            "return deadline is not None",
        ),
    ),
    "a deadline that moves nearer is not noticed": (
        Edit(transitions._scheduled, " or deadline < chain.due_at", ""),
    ),
    "an expiry overwrites what came in between": (
        Edit(
            ChainWriter.change,
            "current = conflict.chain",
            "from dataclasses import replace\n"
            "stored = conflict.chain\n"
            "current = stored and replace(current, version=stored.version, stamp=stored.stamp)",
        ),
    ),
    "after a conflict the old state is written": (
        Edit(
            _Part._after_conflict,
            "self.cached = CachedChain(conflict.chain, verified=True)",
            "from dataclasses import replace\n"
            "stored = conflict.chain\n"
            "old = self.cached and self.cached.chain\n"
            "if old is not None and stored is not None:\n"
            "    stored = replace(old, version=stored.version, stamp=stored.stamp)\n"
            "self.cached = CachedChain(stored, verified=True)",
        ),
    ),
    "the state that a failed condition returns is ignored": (
        Edit(
            DynamoDBStore.write,
            "stored = self._decode(item) if item else self.read([after.tag]).get(after.tag)",
            "stored = None",
        ),
    ),
    "the write has no condition": (
        Edit(DynamoDBStore.write, "ConditionExpression=condition", "ConditionExpression=None"),
    ),
    "the write's condition leaves the version out": (
        Edit(
            dynamodb_store._condition_expression,
            'condition += " AND #version = :old_version"',
            "pass",
        ),
    ),
    "the write's condition leaves the stamp out": (
        Edit(
            dynamodb_store._condition_expression,
            'condition += " AND #stamp = :old_stamp"',
            "pass",
        ),
    ),
    "reads are not consistent": (
        Edit(DynamoDBStore._batch_get, "ConsistentRead=True", "ConsistentRead=False"),
    ),
    "batch reads are not consistent": (
        Edit(DynamoDBStore._batch_get, '"ConsistentRead": True', '"ConsistentRead": False'),
    ),
    "spilled marks are not looked up": (
        Edit(_Part._spilled_marks, "if chain is None or not chain.spilled:", "if True:"),
    ),
    "a call does not look up its own request after a lost response": (
        Edit(_Part._attempt, "ours if fresh_ids else", "[] if fresh_ids else"),
    ),
    "ids of queued requests are taken for fresh": (
        Edit(_Part._attempt, "if fresh_ids else", "if True else"),
    ),
    "marks leave the chain before they are copied": (
        Edit(
            _Part._spill,
            "self.store.put_spilled_marks(before, marks, until)",
            "self.later = (before, marks, until)",
        ),
        Edit(
            _Part._attempt,
            "self.store.write(chain, after)",
            "self.store.write(chain, after)\n"
            "if getattr(self, 'later', None):\n"
            "    self.store.put_spilled_marks(*self.later)\n"
            "    self.later = None",
        ),
    ),
    "marks that a batch write did not process are forgotten": (
        Edit(DynamoDBStore.put_spilled_marks, "if not left:", "if True:"),
    ),
    "keys that a batch read did not process are forgotten": (
        Edit(DynamoDBStore._batch_get, "wanted = left", "wanted = []"),
    ),
    "a lost response is retried blindly": (
        Edit(
            _Part._attempt,
            "chain, verified = self.cached.chain, self.cached.verified",
            "chain, verified = self.cached.chain, self.cached.verified\n"
            "if self.maybe_applied and chain is not None:\n"
            "    from dataclasses import replace\n"
            "    ours = {mark[:12] for mark in self.marks}\n"
            "    marks = [chain.marks[at : at + 16] for at in range(0, len(chain.marks), 16)]\n"
            "    kept = b''.join(mark for mark in marks if mark[:12] not in ours)\n"
            "    chain = replace(chain, marks=kept)",
        ),
    ),
    "a fail is not sticky": (
        Edit(
            transitions._fold,
            '"version": old.version + 1,',
            '"version": old.version + 1,\n"failing": None,',
        ),
    ),
    "a second create is applied": (
        Edit(transitions.apply, 'elif verdict == "TagExists":', "elif False:"),
    ),
    "another request under a used id is taken for a duplicate": (
        Edit(transitions._duplicate, "if same_content:", "if True:"),
    ),
    "a message is deleted though its chain was not written": (
        Edit(Consumer._write_chains, "batch.fail(tag, applied)", "pass"),
    ),
    "a dead letter that could not be sent is forgotten": (
        Edit(
            Consumer._send_rejected,
            "batch.failed.setdefault(entries[position][1], reason)",
            "pass",
        ),
    ),
    "our own write is taken for another's at the last attempt": (
        Edit(
            _Part._after_conflict,
            "self.exhausted = StaleLocalData(self.tag, self.retry.attempt)",
            "raise StaleLocalData(self.tag, self.retry.attempt)",
        ),
    ),
}
"""The effect of each mutant to its edits."""
