"""The answers of `xorack web`: pages of chains and dead letters, and the actions of buttons."""

from __future__ import annotations

import functools
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.client.names import Candidate
from xorack.core.errors import ArgumentError, NotAChainError, TagNotFound
from xorack.core.ports import Publisher
from xorack.core.request import Request
from xorack.core.text import plural
from xorack.ops.backlog import Backlog, Watch
from xorack.ops.browse import GROUPS, ORDERS, OVERDUE, SEARCHED, Query, read_chains
from xorack.ops.changes import Changed, change_chain
from xorack.ops.dead_letters import DeadMessage, Kind, Selector, add_to_groups
from xorack.ops.log_windows import window_table
from xorack.ops.redrive import MoveResult, Redrive, Survey
from xorack.ops.status import ChainStatus, failed_children, read_status
from xorack.ops.unit_names import candidates_in, name_text, names_in
from xorack.web.page import pages

_KINDS: tuple[Kind, ...] = ("failed", "rejected", "malformed")
"""The kinds that can be sent back if an operator selects the messages."""
_FEW = 10_000
"""The most candidates that are tried for each chain of a list. 50 chains take 2 s once."""
_CHAINS_KEPT = 1000
MESSAGES = 100
_TAGS = 100
"""The most chains that are read to see which rejected messages may be sent back."""
WINDOWS = 100
_FOLDER = Path(__file__).parent
_TYPES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.svg": "image/svg+xml",
}


class Response(NamedTuple):
    """A response with its status, its body and the body's type."""

    status: int
    body: bytes
    type: str = "text/html; charset=utf-8"


class DeadLetters:
    """A dead-letter queue. One caller at a time uses it, because reading hides messages."""

    def __init__(self, redrive: Redrive, backlog: Callable[[], Backlog | None]) -> None:
        self._redrive, self._backlog = redrive, Watch(backlog)
        self._lock = threading.Lock()
        self._count = 0
        self._seen: tuple[int, list[DeadMessage]] = 0, []

    def count(self) -> int:
        """Return SQS's estimate of the messages.

        While a caller hides messages, return the last one.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._count = self._redrive.count()
            finally:
                self._lock.release()
        return self._count

    def backlog(self) -> Backlog | None:
        """Return the acker's backlog; None if it is unknown."""
        return self._backlog()

    def read(self) -> tuple[Survey, int]:
        """Read the first messages, and return them with the `count` before the read."""
        with self._lock:
            count = self._count = self._redrive.count()
            survey = self._redrive.survey(limit=MESSAGES, keep=MESSAGES)
        survey.groups = add_to_groups({}, survey.messages)
        self._seen = count, survey.messages
        return survey, count

    def of(self, tag: str) -> list[DeadMessage]:
        """Return a chain's messages among the first messages. A change of `count` rereads them."""
        if (count := self.count()) != self._seen[0]:
            self.read()
        return [message for message in self._seen[1] if tag in message.tags] if count else []

    def change(self, ids: Sequence[str], *, delete: bool) -> str:
        """Send messages back to the queue, or delete them; return a text about the result."""
        with self._lock:
            survey = self._redrive.survey(Selector(ids))
            if delete:
                result = self._redrive.delete(survey)
            else:
                result = self._redrive.move(_KINDS, survey) if survey.ids else MoveResult(0)
        verb = "deleted" if delete else "sent back"
        done = result.moved - (result.undeleted if delete else 0)
        if done >= len(ids):
            return f"{plural(done, 'message')} {verb}."
        reasons = "The others were deleted, expired, or are with another reader."
        return f"{done:,} of {plural(len(ids), 'message')} {verb}. {reasons}"


class UnitNames:
    """Finds names of outstanding units among candidates from a file and from the page."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._candidates = list(candidates)
        self._find = functools.lru_cache(maxsize=_CHAINS_KEPT)(
            lambda tag, units: names_in(units, self._candidates, tag)
        )

    def add(self, candidates: Iterable[Candidate]) -> None:
        self._candidates += candidates
        self._find.cache_clear()

    def names(self, status: ChainStatus) -> Mapping[int, str]:
        """Return the known names of a chain's units."""
        if not self._candidates or status.chain.status == "acked":
            return status.partitions
        names = self._find(status.chain.tag, tuple(status.outstanding))
        return {unit: name_text(name) for unit, name in names.items()} | status.partitions

    def names_in_list(self, status: ChainStatus) -> Mapping[int, str]:
        """Return the names for a chain of a list. With many candidates, return none."""
        return self.names(status) if len(self._candidates) <= _FEW else status.partitions


@dataclass
class Site:
    """The pages for a table, and perhaps for a dead-letter queue, under a name.

    `publisher` publishes the event of a chain that a form fails. A form must send the `token`.
    """

    name: str
    store: DynamoDBStore
    letters: DeadLetters | None = None
    candidates: InitVar[Iterable[Candidate]] = ()
    publisher: Publisher | None = None
    explain: Callable[[Exception], str] = str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self, candidates: Iterable[Candidate]) -> None:
        """Collect the candidates for names of units."""
        self._naming = UnitNames(candidates)

    def get(self, path: str, fields: Mapping[str, str], known: str | None = None) -> Response:
        """Return a page or one of its files, without changing anything.

        `known` is the number of messages that the browser's page of dead letters shows.
        """
        match path:
            case "":
                return self._chains(fields)
            case "chain":
                return self._chain(fields.get("tag", ""))
            case "windows":
                return self._windows(fields.get("prefix", ""))
            case "dead-letters":
                return self._dead_letters(known)
        if path in _TYPES:
            return Response(200, (_FOLDER / path).read_bytes(), _TYPES[path])
        return self.problem(404, "Not found", "This page does not exist.")

    def post(self, path: str, fields: Mapping[str, Sequence[str]]) -> Response:
        action, ids = ", ".join(fields.get("action", ())), fields.get("id", ())
        if path == "chain":
            return self._change(action, {name: texts[0] for name, texts in fields.items()})
        if path != "dead-letters" or self.letters is None or not 0 < len(ids) <= MESSAGES:
            return self.problem(400, "Bad request", "The form is not from these pages.")
        if action not in ("retry", "delete"):
            return self.failure(ArgumentError("action", action, "retry or delete"))
        return self._dead_letters(notice=self.letters.change(ids, delete=action == "delete"))

    def problem(self, status: int, title: str, reason: str) -> Response:
        return Response(status, pages.error_page(pages.Frame(self.name), title, reason))

    def failure(self, error: Exception) -> Response:
        if isinstance(error, TagNotFound):  # the chain's messages may be queued or dead-lettered
            return Response(404, pages.error_page(self._frame(), "Chain not found", str(error)))
        if isinstance(error, NotAChainError):
            return self.problem(404, "Not a chain", str(error))
        if isinstance(error, ArgumentError):
            return self.problem(400, "Bad request", str(error))
        return self.problem(503, "AWS does not respond as expected", self.explain(error))

    def _frame(self, names: pages.NamesOf = lambda _: {}, notice: str = "") -> pages.Frame:
        counts = (self.letters.count(), self.letters.backlog()) if self.letters else ()
        return pages.Frame(self.name, self.token, names, notice, *counts)

    def _chains(self, fields: Mapping[str, str]) -> Response:
        group, order = fields.get("group", ""), fields.get("order", "")
        skip = fields.get("skip", "0")
        if group and group not in (*GROUPS, OVERDUE):
            raise ArgumentError("group", group, " or ".join((*GROUPS, OVERDUE)))
        if order not in ORDERS:
            raise ArgumentError("order", order, " or ".join(filter(None, ORDERS)))
        if not (skip.isascii() and skip.isdecimal() and len(skip) < 10):
            raise ArgumentError("skip", skip, "a number of chains")
        names = ("prefix", "text", "cause", "after")
        texts = {name: fields.get(name, "") for name in names}
        page = read_chains(self.store, Query(group=group, order=order, skip=int(skip), **texts))
        frame = self._frame(self._naming.names_in_list)
        return Response(200, pages.chains_page(frame, page))

    def _windows(self, prefix: str) -> Response:
        invalid: list[NotAChainError] = []
        part = self.store.scan_part(SEARCHED, invalid.append, prefix=prefix)
        now = milliseconds()
        table = window_table((ChainStatus(chain, now) for chain in part.chains), limit=WINDOWS)
        searched = part.read if part.after else None
        return Response(200, pages.windows_page(self._frame(), table, prefix, searched))

    def _chain(self, tag: str, notice: str = "") -> Response:
        status = read_status(self.store, tag)
        letters = self.letters.of(tag) if self.letters else []
        frame = self._frame(self._naming.names, notice)
        children = failed_children(self.store, status)
        return Response(200, pages.chain_page(frame, status, letters, children))

    def _change(self, action: str, fields: Mapping[str, str]) -> Response:
        """Fail a chain, move its deadline, or try names for its outstanding units."""
        tag = fields.get("tag", "")
        if action == "names":
            candidates = list(candidates_in(fields.get("among", "").splitlines()))
            self._naming.add(candidates)
            return self._chain(tag, f"{plural(len(candidates), 'name')} checked and saved.")
        id = f"{action}-{secrets.token_hex(16)}"
        if action == "fail":
            if not fields.get("reason"):
                raise ArgumentError("reason", "", "a text, which the chain's event repeats")
            request, done = Request("fail", tag, id, reason=fields["reason"]), "Failed."
        elif action == "extend":
            minutes = fields.get("minutes", "")
            if not (minutes.isascii() and minutes.isdecimal() and len(minutes) < 9):
                raise ArgumentError("minutes", minutes, "a whole number")
            request = Request("extend", tag, id, timeout=60 * int(minutes))
            done = "Deadline changed."
        else:
            raise ArgumentError("action", action, "extend or fail")
        changed = change_chain(self.store, request, self.publisher)
        ended = "Already ended; nothing changed."
        return self._chain(tag, done if isinstance(changed, Changed) else ended)

    def _dead_letters(self, known: str | None = None, notice: str = "") -> Response:
        if self.letters is None:
            reason = "The dead-letter queue is unknown; pass --stack."
            return self.problem(404, "Dead letters", reason)
        # A read counts as a receive, so messages that are up to date are not read again.
        if known is not None and known == str(self.letters.count()):
            return Response(204, b"")
        survey, count = self.letters.read()
        frame = replace(self._frame(notice=notice), letters=count)
        return Response(200, pages.letters_page(frame, survey, self._retryable(survey.messages)))

    def _retryable(self, messages: Sequence[DeadMessage]) -> set[str]:
        """Return the ids of messages that may be accepted now, because their chain has expired."""
        rejected = [each for each in messages if each.kind == "rejected"]
        tags = [*dict.fromkeys(tag for each in rejected for tag in each.tags)]
        exist = self.store.read(tags[:_TAGS], lambda _: None) if tags else {}
        known = {*exist, *tags[_TAGS:]}
        again = [each for each in rejected if known.isdisjoint(each.tags)]
        return {each.id for each in messages if each.kind == "failed"} | {each.id for each in again}
