"""Broken versions of the code, which the simulation must catch."""

from collections.abc import Iterator
from contextlib import contextmanager

from lambda_src import environment
from tests.support.mutants import Edit, edited
from xorack.acker.chain_writer import ChainWriter, _Part
from xorack.acker.consumer import Consumer, _Batch
from xorack.acker.outbox import Outbox
from xorack.acker.sweeper import Sweeper
from xorack.aws import dynamodb_store, item
from xorack.aws.client import TimeOuts
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.mark_buckets import MarkBuckets
from xorack.aws.resume import Resumer
from xorack.aws.table import Table
from xorack.core import event, marks, transitions
from xorack.core.chain import Chain
from xorack.ops.redrive import Redrive


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Run a mutant; None runs the code itself."""
    with edited(MUTANTS[name] if name else []):
        yield


_EDITS = [Edit(*row) for row in (
    ("the mark is written after the XOR", _Part._attempt,
     "self.store.write(chain, after)",
     "from dataclasses import replace\n"
     "bare = replace(after, marks=chain.marks if chain else b'')\n"
     "self.store.write(chain, bare)\n"
     "after = replace(after, version=after.version + 1)\n"
     "self.store.write(bare, after)"),
    ("the mark is written before the XOR", _Part._attempt,
     "self.store.write(chain, after)",
     "from dataclasses import replace\n"
     "if chain is not None:\n"
     "    marked = replace(\n"
     "        chain, marks=after.marks, spilled=after.spilled, version=after.version\n"
     "    )\n"
     "    self.store.write(chain, marked)\n"
     "    chain, after = marked, replace(after, version=after.version + 1)\n"
     "self.store.write(chain, after)"),
    ("requests are folded before duplicates are dropped", transitions.apply,
     "if before is not None:", "if before is not None and all(m[:12] in seen for m in marks):"),
    ("a duplicate within a batch is not dropped", transitions.apply,
     "seen[key] = checksum", "pass"),
    ("the event is published before the state is written", DynamoDBStore.write,
     "new = self._encode(after)",
     "from xorack.aws.eventbridge import EventBus\n"
     "from xorack.aws.retry import RetryPolicy\n"
     "if after.final and not (before and before.final):\n"
     "    once = RetryPolicy(attempts=1)\n"
     "    EventBus('bus', self.client, policy=once).publish([after])\n"
     "new = self._encode(after)"),
    ("no event is pending, whoever ends the chain publishes it", transitions._run,
     '"event_pending": True', '"event_pending": False'),
    ("no event is pending, whoever ends the chain publishes it", Consumer._write_chains,
     "applied.chain.undelivered:",
     "applied.chain.final and any(kind == 'applied' for _, kind, _ in applied.outcomes):"),
    ("no event is pending, whoever ends the chain publishes it", Sweeper._judge,
     "if after.undelivered:", "if after.final and not before.final:"),
    ("the event is marked as published before it is published", Outbox.publish,
     "waiting: dict[str, list[Chain]] = {}",
     "for chain in chains:\n"
     "    self._mark_delivered((chain, chain.undelivered))\n"
     "waiting: dict[str, list[Chain]] = {}"),
    ("nobody is resumed", transitions._run,
     '"resume_pending": chain.resume is not None', '"resume_pending": False'),
    ("what was delivered on one channel counts for all", transitions.mark_delivered,
     "if channel not in channels]", "if False]"),
    ("the sweeper forgets who waits once the event is published", transitions.mark_delivered,
     "chain.due_at if left else None", "None"),
    ("an error of a service counts as a resumed task", Resumer._resume,
     "if error_code(error) not in service.over:", "if False:"),
    ("a failed chain resumes a task as acked", Resumer._resume,
     'if chain.status == "acked":', "if True:"),
    ("failed entries of PutEvents are ignored", EventBus._put_events,
     'if not response.get("FailedEntryCount"):', "if True:"),
    ("each copy of an event has another id", event.event_id,
     "chain.ended_at]", "chain.ended_at, __import__('uuid').uuid4().hex]"),
    ("a chain is deleted at zero", DynamoDBStore.write,
     "new = self._encode(after)",
     "if after.status == 'acked' and not after.event_pending:\n"
     "    self._call('delete_item', Key=self._key(after.tag))\n"
     "    return\n"
     "new = self._encode(after)"),
    ("a late request is applied to a finished chain", transitions.apply,
     'if verdict == "late":', "if False:"),
    ("a due chain is failed though its deadline moved", transitions._is_late,
     "return deadline is not None and deadline <= now", "return deadline is not None"),
    ("a deadline that moves nearer is not noticed", transitions._scheduled,
     " or deadline < chain.due_at", ""),
    ("an expiry overwrites what came in between", ChainWriter.change,
     "current = conflict.chain",
     "from dataclasses import replace\n"
     "stored = conflict.chain\n"
     "current = stored and replace(current, version=stored.version, stamp=stored.stamp)"),
    ("after a conflict the old state is written", _Part._after_conflict,
     "self.cached = CachedChain(conflict.chain, verified=True)",
     "from dataclasses import replace\n"
     "stored = conflict.chain\n"
     "old = self.cached and self.cached.chain\n"
     "if old is not None and stored is not None:\n"
     "    stored = replace(old, version=stored.version, stamp=stored.stamp)\n"
     "self.cached = CachedChain(stored, verified=True)"),
    ("the state that a failed condition returns is ignored", DynamoDBStore.write,
     "stored = self._decode(item) if item else self.read([after.tag]).get(after.tag)",
     "stored = None"),
    ("the write has no condition", DynamoDBStore.write,
     "ConditionExpression=condition", "ConditionExpression=None"),
    ("the write's condition leaves the version out", dynamodb_store._condition_expression,
     'condition += " AND #version = :old_version"', "pass"),
    ("the write's condition leaves the stamp out", dynamodb_store._condition_expression,
     'condition += " AND #stamp = :old_stamp"', "pass"),
    ("reads are not consistent", Table.read,
     "ConsistentRead=True", "ConsistentRead=False"),
    ("batch reads are not consistent", Table.read,
     '"ConsistentRead": True', '"ConsistentRead": False'),
    ("spilled marks are not looked up", _Part._spilled_marks,
     "if chain is None or not chain.spilled:", "if True:"),
    ("a call does not look up its own request after a lost response", _Part._attempt,
     "ours if fresh_ids else", "[] if fresh_ids else"),
    ("ids of queued requests are taken for fresh", _Part._attempt,
     "if fresh_ids else", "if True else"),
    ("marks leave the chain before they are copied", _Part._spill,
     "self.store.put_spilled_marks(before, marks, until)", "self.later = (before, marks, until)"),
    ("marks leave the chain before they are copied", _Part._attempt,
     "self.store.write(chain, after)",
     "self.store.write(chain, after)\n"
     "if getattr(self, 'later', None):\n"
     "    self.store.put_spilled_marks(*self.later)\n"
     "    self.later = None"),
    ("keys that a batch read did not process are forgotten", Table.read,
     "wanted = left", "wanted = []"),
    ("a lost response is retried blindly", _Part._attempt,
     "chain, verified = self.cached.chain, self.cached.verified",
     "chain, verified = self.cached.chain, self.cached.verified\n"
     "if self.maybe_applied and chain is not None:\n"
     "    from dataclasses import replace\n"
     "    ours = {mark[:12] for mark in self.marks}\n"
     "    marks = [chain.marks[at : at + 16] for at in range(0, len(chain.marks), 16)]\n"
     "    kept = b''.join(mark for mark in marks if mark[:12] not in ours)\n"
     "    chain = replace(chain, marks=kept)"),
    ("a fail is not sticky", transitions._fold,
     '"version": old.version + 1,',
     '"version": old.version + 1,\n'
     '"failing": None,'),
    ("a second create is applied", transitions.apply,
     'if verdict == "TagExists":', 'if verdict == "TagExists" and chain and chain.final:'),
    ("another request under a used id is taken for a duplicate", transitions._duplicate,
     "if same_content:", "if True:"),
    ("a message is deleted though its chain was not written", Consumer._write_chains,
     "batch.fail(tag, applied)", "pass"),
    ("a dead letter that could not be sent is forgotten", Consumer._send_rejected,
     "batch.failed.setdefault(batch.rejected[position][1], reason)", "pass"),
    ("our own write is taken for another's at the last attempt", _Part._after_conflict,
     "self.exhausted = StaleLocalData(self.tag, self.retry.attempt)",
     "raise StaleLocalData(self.tag, self.retry.attempt)"),
    ("the write's condition leaves the generation out", dynamodb_store._condition_expression,
     '"attribute_exists(#key)" + _generation_condition(', '"attribute_exists(#key)" + str('),
    ("the write's condition leaves the generation out", dynamodb_store._condition_expression,
     "before.first_seen_at, names, values", '""'),
    ("a deletion takes whatever generation there is", DynamoDBStore.delete,
     "condition += _generation_condition(generation, names, values)", "pass"),
    ("a repeated deletion reads the generation anew", DynamoDBStore._generation_to_delete,
     "if record not in stored:", "if True:"),
    ("a repeated deletion reads the generation anew", DynamoDBStore._generation_to_delete,
     "if_not_exists(#gen, :gen)", ":gen"),
    ("a wrong request to an ended chain is only late", transitions.apply,
     "elif request.stamp is not None and length",
     'elif verdict != "late" and request.stamp is not None and length'),
    ("a late create is only counted", transitions.apply,
     "verdict = verdicts[request.op]",
     "verdict = verdicts[request.op]\n"
     "if chain is not None and chain.final and not chain.created:\n"
     "    verdict = 'late'"),
    ("a late create is rejected without the chain's reason", transitions.apply,
     "reason = chain.reason if chain is not None and not chain.created else None",
     "reason = None"),
    ("a zero chain is acked though its counts differ", transitions._is_complete,
     " and chain.started == chain.finished", ""),
    ("a time-out at zero does not name the counts", transitions._is_late_at_zero,
     "return _is_late(chain, now)", "return False"),
    ("a pending chain ends at its deadline", Chain.effective_deadline.fget,
     'if self.status == "pending":', "if False:"),
    ("a wrong length before the create takes the chain", transitions._stamp_length,
     "if creates:", "if False:"),
    ("two lengths of stamps do not fail the chain", transitions._fold_stamps,
     "if old.stamp and len(old.stamp) != length:", "if False:"),
    ("spilled marks expire at the first deadline", ChainWriter.keep_marks,
     "if after.marks_until is None or", "if True or"),
    ("the marks of one bucket only are prolonged", MarkBuckets.keep,
     "for bucket in all_buckets(chain.spilled):",
     "for bucket in list(all_buckets(chain.spilled))[-1:]:"),
    ("spilled marks are looked up on the newest level only", marks.buckets_of,
     "for level in range(_level(spilled) + 1))", "for level in [_level(spilled)])"),
    ("a bucket's marks are replaced", MarkBuckets.put,
     'update = "SET #until = :until ADD #marks :marks"',
     'update = "SET #until = :until, #marks = :marks"'),
    ("tombstones expire at once", item.encode,
     "chain.ended_at + retention", "chain.ended_at"),
    ("a newer format is read as this one", item.decode,
     "> schema.FORMAT", "> 99"),
    ("an event that is not published fails its message", Consumer.consume,
     "self._send_rejected(batch)",
     "for tag, reason in failures.items():\n"
     "    batch.fail(tag, reason)\n"
     "self._send_rejected(batch)"),
    ("calls take their time whatever is left", TimeOuts.within.__func__,
     "return cls(min(1.0, seconds / 12), min(5.0, seconds / 12))", "return cls(3.0, 10.0)"),
    ("nothing is reserved for the last call", environment.Invocation.time_left,
     "reserve = ", "reserve = 0 * "),
    ("an event that was not accepted is marked as published", Outbox.publish,
     "if chain.tag not in failed:", "if True:"),
    ("messages older than the tombstones are taken", Redrive._receive,
     "- self.retention", "- 99 * self.retention"),
    ("messages older than the tombstones are taken", _Batch.__init__,
     "message.sent_at < oldest", "False"),
    ("a mark's checksum leaves out time-out and detail", marks.mark_of,
     'if request.op != "stamp":', "if False:"),
    ("pending events are forgotten after a sweep without time", Sweeper._publish,
     "self._read(self.outbox.writer, part, result)", "[]"),
)]  # fmt: skip

MUTANTS = {edit.mutant: [one for one in _EDITS if one.mutant == edit.mutant] for edit in _EDITS}
"""The effect of each mutant to its edits."""
