"""Changes chains by hand: fails them, or moves their deadlines."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from xorack.acker.chain_writer import Application, ChainWriter
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.aws import schema
from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import EVENT
from xorack.core.errors import TagNotFound
from xorack.core.ports import OnInvalid, Publisher
from xorack.core.request import Request
from xorack.core.transitions import Limits
from xorack.ops.run_chains import RunChains
from xorack.ops.status import ChainStatus

_WORKERS = Workers(8)
_TOGETHER = 80
"""The number of chains whose results appear together."""


@dataclass(frozen=True)
class Changed:
    """The request was applied. The status is the chain's status after it."""

    tag: str
    status: ChainStatus


@dataclass(frozen=True)
class AlreadyEnded:
    """The chain had already ended, so the request changed nothing."""

    tag: str
    status: ChainStatus


@dataclass(frozen=True)
class NotChanged:
    """The request was not applied, for this reason."""

    tag: str
    reason: str


ChangeResult = Changed | AlreadyEnded | NotChanged


def unfinished_tags(store: DynamoDBStore, run: RunChains, on_invalid: OnInvalid) -> list[str]:
    """Scan the table, and return the sorted tags of a run's unfinished chains.

    `on_invalid` is called for each item of the run that is not a chain.
    """
    attributes = (schema.STATUS, schema.FORMAT_NAME)
    chains = store.scan(on_invalid, prefix=run.prefix, attributes=attributes)
    return sorted(chain.tag for chain in chains if not chain.final)


def change_chain(
    store: DynamoDBStore, request: Request, publisher: Publisher | None = None
) -> Changed | AlreadyEnded:
    """Apply a request to a chain, and publish its event if it has ended.

    Without a publisher, or if the bus cannot be reached, the event stays pending. The sweeper then
    publishes it within several minutes.

    Raises:
        TagNotFound: The chain does not exist.
        XorAckError: The request was rejected, or the chain cannot be read or written now.
    """
    store, tag = store.with_all_attributes(), request.tag
    writer = ChainWriter(store, limits=Limits(retention_ms=store.retention_ms))
    chain, (outcome,) = writer.apply(Application(tag, [request], must_exist=True))
    if chain is None:
        raise TagNotFound(tag)
    if outcome.error is not None:
        raise outcome.error
    if chain.reports.event_pending and publisher is not None:
        Outbox(writer, {EVENT: publisher}).publish([chain])
        chain = store.read([tag]).get(tag, chain)
    status = ChainStatus(chain, milliseconds())
    return Changed(tag, status) if outcome.kind == "applied" else AlreadyEnded(tag, status)


def change_chains(
    store: DynamoDBStore,
    op: Literal["fail", "extend"],
    tags: Iterable[str],
    fields: Mapping[str, Any],
    publisher: Publisher | None = None,
    describe: Callable[[Exception], str] = str,
) -> Iterator[ChangeResult]:
    """Apply a request to each of several chains: see `change_chain`.

    The tags must differ. `fields` are the other fields of the requests: `reason` or `timeout`. If a
    field is invalid, nothing is changed. After an error the other chains are still changed.
    `describe` returns the error's text, or raises the error if it is a bug.
    """

    def change(request: Request) -> ChangeResult:
        try:
            return change_chain(store, request, publisher)
        except Exception as error:  # noqa: BLE001 - `describe` raises bugs again
            return NotChanged(request.tag, describe(error))

    requests = [Request(op, tag, f"{op}-{uuid.uuid4().hex}", **fields) for tag in tags]
    for at in range(0, len(requests), _TOGETHER):
        yield from _WORKERS.map(change, requests[at : at + _TOGETHER])
