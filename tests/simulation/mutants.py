"""Broken versions of the code, which the simulation must catch.

A row names a mutant and replaces one function or table; rows of one name belong together. A
replacement gets the function that it replaces, then the arguments of the call. The slow mutants are
those that no unit test catches.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from lambda_src.environment import Invocation
from tests.simulation.world import EPOCH
from tests.support.chains import changed
from tests.support.mutants import Replaced
from xorack.acker import parents
from xorack.acker.chain_writer import CachedChain, ChainWriter
from xorack.acker.consumer import Consumer, _Done, _Run
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.acker.sweeper import _Walk
from xorack.aws import dynamodb_store, item, schema
from xorack.aws.callbacks import CALLBACK_SERVICES
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.retry import RetryPolicy
from xorack.aws.table import Table
from xorack.core import event, marks, transitions
from xorack.core.chain import EVENT, PARENTS, Chain
from xorack.core.marks import MARK_BYTES, MARK_KEY_BYTES, split_marks
from xorack.core.ports import Failure
from xorack.core.request import Request
from xorack.core.transitions import VERDICTS
from xorack.errors import ConflictError, UnavailableError

_CONDITION = dynamodb_store._condition_expression
ANY_STATE = "attribute_exists(#key) OR attribute_not_exists(#key)"


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Run a mutant; None runs the code itself."""
    with ExitStack() as stack:
        for replacement in MUTANTS[name] if name else ():
            stack.enter_context(replacement)
        yield


# -- the mark and the XOR ----------------------------------------------------------------------


def _mark_after_xor(write, store, before, after):
    old = before.marks if before else b""
    bare = replace(after, marks=old)
    write(store, before, bare)
    if after.marks != old:
        write(store, bare, after)


def _mark_before_xor(write, store, before, after):
    if before is not None and after.marks != before.marks:
        marked = replace(before, marks=after.marks, spilled=after.spilled, version=after.version)
        write(store, before, marked)
        before = marked
    write(store, before, after)


def _without(chain, forgotten):
    """Return a chain without the marks of these requests."""
    keys = {mark[:MARK_KEY_BYTES] for mark in forgotten}
    kept = [chain.marks[at : at + MARK_BYTES] for at in range(0, len(chain.marks), MARK_BYTES)]
    return replace(chain, marks=b"".join(m for m in kept if m[:MARK_KEY_BYTES] not in keys))


def _fold_before_drop(apply, chain, requests, *, marks, spilled_marks=None, **rest):
    seen = {**split_marks(chain.marks if chain else b""), **(spilled_marks or {})}
    if chain is not None and not all(mark[:MARK_KEY_BYTES] in seen for mark in marks):
        chain, spilled_marks = _without(chain, marks), None
    return apply(chain, requests, marks=marks, spilled_marks=spilled_marks, **rest)


def _repeat_within_batch(apply, chain, requests, *, marks, spilled_marks=None, **rest):
    stored = {**split_marks(chain.marks if chain else b""), **(spilled_marks or {})}
    others, real = list(marks), {}
    for position, mark in enumerate(marks):
        if mark in marks[:position] and mark[:MARK_KEY_BYTES] not in stored:
            others[position] = position.to_bytes(MARK_KEY_BYTES, "big") + mark[MARK_KEY_BYTES:]
            real[others[position]] = mark
    applied = apply(chain, requests, marks=others, spilled_marks=spilled_marks, **rest)
    for other, mark in real.items():
        written = applied.chain.marks.replace(other, mark)
        applied = applied._replace(chain=replace(applied.chain, marks=written))
    return applied


def _write_then_spill(write, store, before, after):
    write(store, before, after)
    if "later" in vars(store):
        vars(store).pop("later")()


def _blind_retry(attempt, writer, work, part, **named):
    if work.unknown:
        if work.cached is None:
            stored = writer.store.read([work.tag]).get(work.tag)
            work.cached = CachedChain(stored, verified=True)
        if work.cached.chain is not None:
            work.cached = replace(work.cached, chain=_without(work.cached.chain, part.marks))
    return attempt(writer, work, part, **named)


# -- the write ---------------------------------------------------------------------------------


def _leave_out(*attributes):
    """Return a replacement that leaves attributes out of the condition of a write."""

    def condition(build, *call):
        terms = build(*call).split(" AND ")
        left_out = [f"#{attribute}" for attribute in attributes]
        return " AND ".join(term for term in terms if not any(name in term for name in left_out))

    return condition


def _write_old_state(after_conflict, writer, work, conflict, retry):
    old, stored = work.chain, conflict.stored
    if old is not None and stored is not None:
        stored = replace(old, version=stored.version, stamp=stored.stamp)
    return after_conflict(writer, work, conflict._replace(stored=stored), retry)


def _overwrite(expire, writer, chain):
    def write(before, _):
        old = replace(chain, version=before.version, stamp=before.stamp)
        after = transitions.expire(old, writer.now())
        if after is not old:
            writer.store.write(before, after)

    other, store = copy(writer), copy(writer.store)
    other.store, store.write = store, write
    return expire(other, chain)


def _ignore_returned_state(write, *call):
    try:
        write(*call)
    except ConflictError as conflict:
        raise ConflictError(None, maybe_ours=conflict.maybe_ours) from conflict


def _changed_read(operation, change):
    """Return a replacement of `Table.call` that changes the arguments of an operation."""

    def call(original, table, called, **arguments):
        if called == operation:
            change(arguments)
        return original(table, called, **arguments)

    return call


def _stale_batch(arguments):
    for request in arguments["RequestItems"].values():
        request["ConsistentRead"] = False


# -- the end and its event ---------------------------------------------------------------------


def _publish_first(write, store, before, after):
    if after.final and not (before and before.final):
        once = RetryPolicy(attempts=1)
        EventBus("bus", store.table.client, policy=once).publish([after])
    write(store, before, after)


def _mark_first(publish, outbox, chains, *only):
    for chain in chains:
        with suppress(Exception):
            outbox.writer.mark_reported(chain, chain.pending_reports, {})
    return publish(outbox, chains, *only)


def _first_of_all(mark, chain, *call, refused, **named):
    first = min((times for times in chain.reports.refusals.values()), default=None)
    if first is not None:
        shared = {**dict.fromkeys(refused, first), **chain.reports.refusals}
        chain = changed(chain, refused=json.dumps(shared, separators=(",", ":")))
    return mark(chain, *call, refused=refused, **named)


def _delete_at_zero(write, store, before, after):
    if after.status == "acked" and not after.reports.event_pending:
        store.table.call("delete_item", Key=store.table.key(after.tag))
    else:
        write(store, before, after)


def _conflict_is_another(after_conflict, writer, work, conflict, retry):
    if not after_conflict(writer, work, conflict, retry):
        raise conflict.error
    return True


def _miss_nearer_deadline(schedule, chain):
    after = schedule(chain)
    return after if chain.due_at is None or after.due_at is None else chain


def _more_tolerant(chain):
    counts = chain.counts
    return replace(chain, counts=replace(counts, tolerated_units=counts.tolerated_units + 1))


def _count_again(count, consumer, run, work):
    first = [one._replace(message=one.message._replace(receives=1)) for one in run.batch[work.tag]]
    return count(consumer, SimpleNamespace(batch={work.tag: first}, not_counted={}), work)


def _count_of_one_write(count, consumer, run, work):
    ends = any(one.kind == "applied" for one in work.outcomes)
    return _Done() if ends else count(consumer, run, work)


def frozen_first_seen(fold, old, *call):
    """Begin all chains in one millisecond: only the nonce tells those of one tag apart."""
    after = fold(old, *call)
    first = old.first_seen_at is None and after.created_at is not None
    return replace(after, first_seen_at=EPOCH) if first else after


def _in_vain_is_delivered(mark, chain, delivered, *, now, refused=None):
    refused = refused or {}
    vain = {report for report, why in refused.items() if why.kind == "gone"}
    left = {report: why for report, why in refused.items() if report not in vain}
    return mark(chain, [*delivered, *vain], now=now, refused=left)


def _write_in_vain(write, *call):
    result = write(*call)
    return parents._Applied(None, 0) if isinstance(result, Failure) else result


def _lose_without_bus(publish, outbox, chains, only, reserve):
    lost = [one for one in chains if PARENTS in one.pending_reports]
    if only is not None or not lost or not outbox.breakers[EVENT]._failures:
        return publish(outbox, chains, only, reserve)
    kept = [changed(one, parents_pending=False) for one in chains]
    reports = publish(outbox, kept, only, reserve)
    for one in lost:
        reports.reported[one.tag].append(PARENTS)
    return reports


def _as_if_young(write, writer, tag, ends):
    young = [one._replace(child=replace(one.child, created_at=writer.now())) for one in ends]
    return write(writer, tag, young)


def _one_place(due_shards):
    """Put all ended chains into the same partitions, whatever their reports are."""
    every = _PLACES(due_shards)
    return {reports: schema.Place(reports, due_shards, due_shards) for reports in every}


_PLACES = schema.places


def _early(write, writer, work, part, before, applied):
    after = applied.chain
    if after.reports.parents_pending and not (before and before.final):
        parents.apply_ends(writer, Workers(), [after])
    return write(writer, work, part, before, applied)


def _guess_retention(make, invocation):
    try:
        return make(invocation)
    except UnavailableError:
        invocation.process.earlier_retentions = ()
        return make(invocation)


_SERVICE = CALLBACK_SERVICES["step_functions"]
_Row = tuple[Any, ...]
_FAST: tuple[_Row, ...] = (
    ("the mark is written after the XOR", DynamoDBStore.write, _mark_after_xor),
    ("requests are folded before duplicates are dropped", transitions.apply, _fold_before_drop),
    ("a duplicate within a batch is not dropped", transitions.apply, _repeat_within_batch),
    ("the event is published before the state is written", DynamoDBStore.write, _publish_first),
    ("the event is marked as published before it is published", Outbox.publish, _mark_first),
    (
        "nobody is resumed",
        transitions._run,
        lambda run, *call: changed(run(*call), resume_pending=False),
    ),
    (
        "a failed chain resumes a task as acked",
        patch.dict(
            CALLBACK_SERVICES,
            step_functions=(
                _SERVICE._replace(
                    failure=lambda client, token, _, detail: _SERVICE.success(client, token, detail)
                )
            ),
        ),
    ),
    ("each copy of an event has another id", event.event_id, lambda *_: uuid4().hex),
    ("a chain is deleted at zero", DynamoDBStore.write, _delete_at_zero),
    (
        "a late request is applied to a finished chain",
        patch.dict(VERDICTS, dict.fromkeys(("acked", "failed", "never created"), VERDICTS["open"])),
    ),
    ("a deadline that moves nearer is not noticed", transitions._scheduled, _miss_nearer_deadline),
    ("after a conflict the old state is written", ChainWriter._after_conflict, _write_old_state),
    (
        "the state that a failed condition returns is ignored",
        DynamoDBStore.write,
        _ignore_returned_state,
    ),
    ("the write has no condition", _CONDITION, lambda *_: ANY_STATE),
    ("spilled marks are not looked up", ChainWriter._spilled_marks, lambda *_: {}),
    ("a message is deleted though its chain was not written", _Run.fail, lambda *_: None),
    (
        "a zero chain is acked though its counts differ",
        transitions._is_complete,
        lambda _, chain, now: transitions._is_zero(chain),
    ),
    (
        "tombstones expire at once",
        item.encode,
        lambda encode, chain, key, retention_ms: encode(chain, key, 0),
    ),
    (
        "too much outstanding is tolerated",
        transitions._is_tolerated,
        lambda tolerated, chain, now: tolerated(_more_tolerant(chain), now),
    ),
    ("what comes again is counted after the end", Consumer._count_late, _count_again),
    (
        "nothing is counted after the end",
        Consumer._count_late,
        lambda *_: _Done(),
    ),
    (
        "a unit is finished again in another group",
        transitions._new_units,
        lambda new, request, mark, seen: new(request, mark, {}),
    ),
    (
        "a failed child finishes its parents' unit",
        parents.request_of,
        lambda make, child, *call: make(replace(child, status="acked"), *call),
    ),
    ("the end of a child is lost if a parent cannot be written", parents._write, _write_in_vain),
    (
        "spilled marks of ends are not looked up",
        marks.buckets_of,
        lambda every, spilled, _, key: every(spilled, 0, key),
    ),
    ("the end of an old child starts its parent again", parents._write, _as_if_young),
    ("the end of a child is lost while the bus is down", Outbox._publish, _lose_without_bus),
    ("a child finishes its parents' unit before it has ended", ChainWriter._write_applied, _early),
    (
        "a child finishes its parents' unit again and again",
        Request.of_child,
        lambda give, request, tag, _, at: give(request, tag, uuid4().hex, at),
    ),
    ("unreadable retentions count as none", Invocation.make_writer, _guess_retention),
    (
        "one page of the index a shard serves all reports",
        patch.object(schema, "places", _one_place),
    ),
    (
        "one page of the index a shard serves all reports",
        _Walk.run,
        lambda run, *call, **_: run(*call[:4], 1),
    ),
    ("a retried task is not resumed", transitions._has_new_callback, lambda *_: False),
)
_SLOW: tuple[_Row, ...] = (
    (
        "what comes late does not prolong the tombstone",
        item.encode,
        lambda encode, chain, key, retention_ms: {
            **encode(chain, key, retention_ms),
            **{
                n: v
                for n, v in encode(changed(chain, last_late_at=None), key, retention_ms).items()
                if n == schema.EXPIRES_AT
            },
        },
    ),
    (
        "spilled marks of units are not looked up",
        marks.keys_of,
        lambda keys, *call: keys(*call)[:1],
    ),
    (
        "who waits after the end is not answered",
        transitions._answering,
        lambda _, chain, now: changed(chain, resume=None),
    ),
    (
        "a task that does not wait counts as resumed",
        transitions.mark_reported,
        _in_vain_is_delivered,
    ),
    ("the mark is written before the XOR", DynamoDBStore.write, _mark_before_xor),
    ("the first refusal is the last", patch.object(transitions, "_GIVE_UP_MS", 0)),
    ("the first refusal of a report counts for all", transitions.mark_reported, _first_of_all),
    ("an expiry overwrites what came in between", ChainWriter.expire, _overwrite),
    ("the write's condition leaves the version out", _CONDITION, _leave_out("version")),
    (
        "reads are not consistent",
        Table.call,
        _changed_read("get_item", lambda arguments: arguments.update(ConsistentRead=False)),
    ),
    ("batch reads are not consistent", Table.call, _changed_read("batch_get_item", _stale_batch)),
    (
        "a call does not look up its own request after a lost response",
        ChainWriter._spilled_marks,
        lambda look_up, writer, work, *call: look_up(
            writer, SimpleNamespace(unknown=set(), fresh_ids=work.fresh_ids), *call
        ),
    ),
    (
        "ids of queued requests are taken for fresh",
        ChainWriter.apply,
        lambda apply, writer, work: setattr(work, "fresh_ids", True) or apply(writer, work),
    ),
    (
        "marks leave the chain before they are copied",
        DynamoDBStore.put_spilled_marks,
        lambda put, *call: setattr(call[0], "later", partial(put, *call)),
    ),
    ("marks leave the chain before they are copied", DynamoDBStore.write, _write_then_spill),
    ("a lost response is retried blindly", ChainWriter._attempt, _blind_retry),
    (
        "our own write is taken for another's at the last attempt",
        ChainWriter._after_conflict,
        _conflict_is_another,
    ),
    (
        "the write's condition leaves the generation out",
        _CONDITION,
        _leave_out("first_seen_at", "nonce"),
    ),
    (
        "requests of a batch are applied in any order",
        transitions.in_order,
        lambda _, requests, request_of: list(requests),
    ),
    (
        "a count after the end forgets the event",
        Chain.with_late,
        lambda count, *call: changed(count(*call), event_pending=False),
    ),
    (
        "what a later write of the batch that ends a chain finds late is not counted",
        Consumer._count_late,
        _count_of_one_write,
    ),
    ("the write's condition leaves the nonce out", _CONDITION, _leave_out("nonce")),
    ("the write's condition leaves the nonce out", transitions._fold, frozen_first_seen),
    (
        "a refused report is made whenever its chain is read",
        Chain.due_reports,
        lambda _, chain, now: list(chain.pending_reports),
    ),
)

FAST = {name for name, *_ in _FAST}
"""One mutant of each law, among the soonest caught: `make test` runs these."""
MUTANTS: dict[str, list[AbstractContextManager[Any]]] = {}
"""The effect of each mutant to its replacements."""
for _name, *_row in _FAST + _SLOW:
    MUTANTS.setdefault(_name, []).append(Replaced(*_row) if len(_row) > 1 else _row[0])
