"""From rows to requests: the sink's options, the folding of its rows, the ids. No Spark in here."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from xorack.core.errors import InvalidRequest, XorAckError, shown
from xorack.core.request import Op, Request
from xorack.core.stamp import xor_bytes
from xorack.spark.errors import InvalidOption, UnsuitableColumns

__all__ = [
    "COLUMNS",
    "OPTIONS",
    "Chains",
    "Options",
    "Sent",
    "check_queue",
    "deliver",
    "request_id",
    "row_columns",
    "row_values",
]

COLUMNS = {
    "tag": ("string",),
    "op": ("string",),
    "stamp": ("binary",),
    "started": ("bigint", "int"),
    "finished": ("bigint", "int"),
    "timeout": ("bigint", "int", "double", "float"),
    "idle_timeout": ("bigint", "int", "double", "float"),
    "detail": ("string",),
    "reason": ("string",),
}
"""The columns that rows may have, and their types. ``tag`` is required; a row without ``op`` is a
``stamp``, counts left out are 0, ``detail`` is JSON."""

OPTIONS = {
    "queueUrl": "queue_url",
    "runId": "run_id",
    "step": "step",
    "region": "region",
    "endpointUrl": "endpoint_url",
    "sendFrom": "send_from",
}
"""The sink's options, by the name that `send` has for each."""

_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")
_REGION_OF_URL = re.compile(r"https://sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.|api\.aws)")
_EXPECTED = {
    "queue_url": "the queue's URL, such as the stack's output QueueUrl",
    "step": "a name for this step of the job",
    "run_id": "your name for this run, the same when it is repeated",
}
_OPS: tuple[Op, ...] = ("create", "stamp", "fail", "extend")
_MOST_NAME_BYTES = 512


@dataclass(frozen=True)
class Sent:
    """What was sent.

    Attributes:
        messages: SQS messages.
        requests: Requests in them.
        chains: Chains that they are for.
        bytes: Bytes of the messages' bodies.
    """

    messages: int = 0
    requests: int = 0
    chains: int = 0
    bytes: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(
            self.messages + other.messages,
            self.requests + other.requests,
            self.chains + other.chains,
            self.bytes + other.bytes,
        )


@dataclass(frozen=True)
class Options:
    """Where requests go and what their ids are made of. Checked when it is made.

    Attributes:
        queue_url: The queue's URL (the stack's output QueueUrl).
        step: The name of this step of the job, different for each sink of it.
        run_id: The caller's name for this run: the same when the run is repeated, so that what it
            sends twice counts once; another for other data. Not for streams, which go by the
            query's id.
        region: The queue's region; None for the one in the URL, or the default.
        endpoint_url: Another endpoint than AWS's own.
        send_from: ``driver``: the tasks fold, the driver sends what they folded. ``tasks``: each
            task sends its own chains, for very many chains; all rows of a chain and op must be in
            one row (as `xorack.spark.fold` makes them).

    Raises:
        InvalidOption: One is missing or wrong; the error names it as ``style`` spells it.
    """

    queue_url: str
    step: str
    run_id: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    send_from: Literal["driver", "tasks"] = "driver"

    @classmethod
    def of(
        cls, given: Mapping[str, Any], *, streaming: bool = False, camel_case: bool = True
    ) -> Options:
        """Check options as a user gave them.

        Args:
            given: By name, as in `OPTIONS` (the sink's; Spark takes them in any case) or, if not
                ``camel_case``, as `send` has them. A None counts as left out.
            streaming: Whether they are for a stream, which has ids of its own.
            camel_case: How to read and to name them.

        Returns:
            The options.

        Raises:
            InvalidOption: See the class.
        """
        known = {camel.lower(): snake for camel, snake in OPTIONS.items()}
        spelt = {snake: camel if camel_case else snake for camel, snake in OPTIONS.items()}
        values: dict[str, Any] = {}
        for name, value in given.items():
            snake = known.get(str(name).lower()) if camel_case else name
            if snake is None or snake not in spelt:
                if camel_case and str(name).lower() in ("path", "checkpointlocation"):
                    continue  # Spark's own, passed on to every sink
                there = ", ".join(spelt.values())
                raise InvalidOption(str(name), f"no such option; there are {there}")
            if value is not None:
                values[snake] = value
        for snake in ("queue_url", "step") if streaming else ("queue_url", "step", "run_id"):
            if snake not in values:
                raise InvalidOption(spelt[snake], f"is required: {_EXPECTED[snake]}")
        for snake, value in values.items():
            # A date or a number may name a run; what is no text otherwise is a mistake.
            named = isinstance(value, (int, date)) and not isinstance(value, bool)
            if not isinstance(value, str) and not (snake in ("run_id", "step") and named):
                raise InvalidOption(spelt[snake], f"{shown(value)}, expected a string")
            if not str(value).strip():
                expected = _EXPECTED.get(snake, "a value, or no such option")
                raise InvalidOption(spelt[snake], f"is empty: {value!r}, expected {expected}")
        if streaming and "run_id" in values:
            raise InvalidOption(
                spelt["run_id"], "is for batch writes; a stream goes by its query's id"
            )
        if not re.fullmatch(r"https?://[^/\s]+/\S+", values["queue_url"]):
            raise InvalidOption(
                spelt["queue_url"],
                f"{values['queue_url']!r} is no queue's URL (the stack's output QueueUrl is one)",
            )
        endpoint = values.get("endpoint_url")
        if endpoint is not None and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", endpoint):
            raise InvalidOption(
                spelt["endpoint_url"], f"{endpoint!r} is no URL, expected http(s)://HOST"
            )
        region, in_url = values.get("region"), _REGION_OF_URL.match(values["queue_url"])
        if region is not None and not _REGION.fullmatch(region):
            raise InvalidOption(
                spelt["region"], f"{region!r} is no region, expected one such as eu-west-1"
            )
        if region and in_url and endpoint is None and region != in_url[1]:
            raise InvalidOption(
                spelt["region"],
                f"{region!r}, but the queue of {spelt['queue_url']} is in {in_url[1]}",
            )
        for snake in ("step", "run_id"):
            if len(str(values.get(snake, "")).encode(errors="replace")) > _MOST_NAME_BYTES:
                raise InvalidOption(spelt[snake], f"is longer than {_MOST_NAME_BYTES} bytes")
        if values.get("send_from", "driver") not in ("driver", "tasks"):
            raise InvalidOption(
                spelt["send_from"], f"{values['send_from']!r}, expected driver or tasks"
            )
        return cls(**{name: str(value) for name, value in values.items()})  # type: ignore[arg-type]

    def client(self) -> Any:
        """A boto3 client for the queue, made where it is used: clients do not travel to tasks.

        Raises:
            InvalidOption: Nobody says which region; the region or the endpoint makes no client.
        """
        from botocore.exceptions import InvalidRegionError, NoRegionError

        from xorack.aws.client import make_client

        in_url = _REGION_OF_URL.match(self.queue_url)
        settings: dict[str, str] = {}
        if region := self.region or (in_url[1] if in_url else None):
            settings["region_name"] = region
        if endpoint := self.endpoint_url or self._endpoint_in_url():
            settings["endpoint_url"] = endpoint
        try:
            return make_client("sqs", **settings)
        except NoRegionError:
            raise InvalidOption(
                "region", "is required: neither the queue's URL nor the environment says one"
            ) from None
        except InvalidRegionError as error:  # the environment's: a given one was checked
            raise InvalidOption("region", str(error)) from None
        except ValueError as error:
            raise InvalidOption("endpointUrl", str(error)) from None

    def _endpoint_in_url(self) -> str | None:
        """The endpoint of a queue that is not AWS's own; boto3 does not take it from the URL."""
        url = urlsplit(self.queue_url)
        of_aws = (url.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))
        told = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
        return None if of_aws or told else f"{url.scheme}://{url.netloc}"


def request_id(run: str, step: str, batch: int, op: str, tag: str) -> str:
    """The id of a request: whatever Spark runs again, the same request gets the same id.

    Made of nothing that a retried task, a speculative one, a stage or a run that is repeated, or a
    replayed micro-batch changes: no partition, no attempt, no time, nothing random.

    Args:
        run: The run's id, or the streaming query's.
        step: The name of the step.
        batch: The micro-batch's number; 0 in batch jobs.
        op: The request's op.
        tag: The chain.

    Returns:
        32 hex digits.
    """
    name = json.dumps([run, step, batch, op, tag])
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def row_columns(columns: Iterable[tuple[str, str]]) -> list[str]:
    """Check the columns of a frame of requests.

    Args:
        columns: Names and types, as in ``df.dtypes``.

    Returns:
        Their names.

    Raises:
        UnsuitableColumns: ``tag`` is missing, or a column is unknown, there twice or of another
            type; the error lists what there is and what may be.
    """
    columns = list(columns)
    allowed = f"rows may have {', '.join(f'{c} ({t[0]})' for c, t in COLUMNS.items())}"
    there = Counter(name for name, _ in columns)
    if "tag" not in there:
        raise UnsuitableColumns(f"column tag is missing of {', '.join(there) or 'none'}; {allowed}")
    for name, type_ in columns:
        if name not in COLUMNS:
            raise UnsuitableColumns(f"unknown column {name}; {allowed}")
        if there[name] > 1:  # as joins leave them; values would get into wrong columns
            raise UnsuitableColumns(f"column {name} is there {there[name]} times; {allowed}")
        if type_ not in COLUMNS[name] and type_ != "void":
            expected = " or ".join(COLUMNS[name])
            raise UnsuitableColumns(
                f"column {name} is of the type {type_}, expected {expected}; {allowed}"
            )
    return [name for name, _ in columns]


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "binary": (bytes, bytearray),
    "bigint": (int,),
    "int": (int,),
    "double": (float,),
    "float": (float,),
}


def row_values(row: Mapping[str, Any]) -> list[Any]:
    """Check a row that is no frame's.

    Args:
        row: Its values by the names of `COLUMNS`.

    Returns:
        The values in the order of `COLUMNS`; None for what is left out.

    Raises:
        UnsuitableColumns: A name is unknown, or a value of another type than its column's.
    """
    for name, value in row.items():
        if name not in COLUMNS:
            raise UnsuitableColumns(f"unknown column {name}; rows may have {', '.join(COLUMNS)}")
        expected = COLUMNS[name]
        types = tuple(type_ for of in expected for type_ in _TYPES[of])
        if value is not None and (isinstance(value, bool) or not isinstance(value, types)):
            raise UnsuitableColumns(
                f"column {name} of tag {shown(row.get('tag'))}: {shown(value)}, "
                f"expected {' or '.join(expected)}"
            )
    return [row.get(name) for name in COLUMNS]


class Chains:
    """Rows folded per chain and op: what one task has, or all of them together.

    Rows of one chain and op are XORed together and their counts added, so it does not matter how
    rows are spread over tasks. Of fields that are not folded, rows must not disagree.
    """

    __slots__ = ("folded",)

    def __init__(self) -> None:
        self.folded: dict[tuple[str, Op], list[Any]] = {}

    def __len__(self) -> int:
        return len(self.folded)

    def add_rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Chains:
        """Fold rows in.

        Args:
            columns: What `row_columns` gave.
            rows: Values in that order.

        Returns:
            Itself.

        Raises:
            UnsuitableColumns: A row has no tag, no such op, a stamp too few or a count below zero,
                or rows of a chain disagree.
        """
        place = {name: columns.index(name) for name in columns}

        def value(row: Sequence[Any], name: str) -> Any:
            return row[place[name]] if name in place else None

        for row in rows:
            tag, op = value(row, "tag"), value(row, "op") or "stamp"
            if tag is None:
                raise UnsuitableColumns("column tag is null in a row")
            if op not in _OPS:
                raise UnsuitableColumns(f"op of tag {tag!r}: {op!r}, expected {', '.join(_OPS)}")
            stamp = value(row, "stamp")
            # Looked at row by row: folded with others, what is wrong would be lost in the sum.
            if stamp is None and op in ("create", "stamp"):
                raise UnsuitableColumns(f"{op} of tag {tag!r}: stamp: None, expected bytes")
            counts = [value(row, name) or 0 for name in ("started", "finished")]
            for name, count in zip(("started", "finished"), counts, strict=True):
                if count < 0:
                    raise UnsuitableColumns(
                        f"{op} of tag {tag!r}: {name}: {count}, expected 0 or more"
                    )
            self._add(
                (tag, op),
                [
                    None if stamp is None else bytes(stamp),
                    *counts,
                    *(value(row, name) for name in _KEPT),
                ],
            )
        return self

    def merge(self, other: Chains) -> Chains:
        """Fold what another task has in. Returns itself."""
        for key, values in other.folded.items():
            self._add(key, list(values))
        return self

    def _add(self, key: tuple[str, Op], values: list[Any]) -> None:
        have = self.folded.setdefault(key, values)
        if have is values:
            return
        tag, op = key
        if have[0] is not None and values[0] is not None:
            try:
                have[0] = xor_bytes(have[0], values[0])
            except XorAckError as error:
                raise UnsuitableColumns(f"{op} of tag {tag!r}: {error}") from None
        else:
            have[0] = have[0] if values[0] is None else values[0]
        have[1] += values[1]
        have[2] += values[2]
        for place, name in enumerate(_KEPT, 3):
            if have[place] is None:
                have[place] = values[place]
            elif values[place] is not None and values[place] != have[place]:
                raise UnsuitableColumns(
                    f"rows of tag {tag!r} disagree: {op} has {name} {have[place]!r} and "
                    f"{values[place]!r}"
                )

    def requests(self, run: str, step: str, batch: int = 0) -> Iterator[Request]:
        """The requests, in the order of tags, a chain's ``create`` before its other ones.

        Args:
            run: See `request_id`, like the others.
            step: The step.
            batch: The micro-batch.

        Yields:
            One request a chain and op.

        Raises:
            UnsuitableColumns: The protocol does not allow it; names the tag and the field.
        """
        length: tuple[str, int] | None = None  # of the stamps of the chain at hand
        for tag, op in sorted(self.folded, key=lambda key: (key[0], _OPS.index(key[1]))):
            stamp, started, finished, *kept = self.folded[tag, op]
            if stamp is not None:
                if length is not None and length[0] == tag and length[1] != len(stamp):
                    raise UnsuitableColumns(
                        f"{op} of tag {tag!r}: stamp: {len(stamp)} bytes, expected {length[1]} as "
                        "its create has"
                    )
                length = (tag, len(stamp))
            fields = {
                name: field for name, field in zip(_KEPT, kept, strict=True) if field is not None
            }
            try:
                if "detail" in fields:
                    fields["detail"] = json.loads(fields["detail"])
                yield Request(
                    op=op,
                    tag=tag,
                    id=request_id(run, step, batch, op, tag),
                    stamp=stamp,
                    started=started,
                    finished=finished,
                    **fields,
                )
            except InvalidRequest as error:
                raise UnsuitableColumns(f"{op} of tag {tag!r}: {error}") from None
            except json.JSONDecodeError as error:
                raise UnsuitableColumns(
                    f"{op} of tag {tag!r}: detail is no JSON: {error}"
                ) from None


_KEPT = ("timeout", "idle_timeout", "detail", "reason")
"""The fields that are not folded."""


def deliver(
    chains: Chains,
    options: Options,
    run: str,
    batch: int = 0,
    *,
    send: Callable[..., Any] | None = None,
) -> Sent:
    """Pack and send what was folded.

    Args:
        chains: The folded rows.
        options: Where to.
        run: The run's id, or the streaming query's.
        batch: The micro-batch.
        send: `xorack.aws.sqs.send`, or another of its kind.

    Returns:
        What was sent.

    Raises:
        UnsuitableColumns: A row makes no valid request; nothing was sent.
        SendFailed: The queue did not take everything. Do it again: what went out has the same ids.
    """
    requests = list(chains.requests(run, options.step, batch))
    if not requests:
        return Sent()
    if send is None:
        from xorack.aws import sqs

        send = sqs.send
    report = send(options.queue_url, requests, client=options.client())
    return Sent(
        messages=report.messages,
        requests=report.requests,
        chains=len({request.tag for request in requests}),
        bytes=report.bytes,
    )


def check_queue(options: Options) -> None:
    """Ask whether the queue is there, before a job does its work.

    Asked once a process: a queue that answered is not asked again.

    Args:
        options: Which queue.

    Raises:
        InvalidOption: There is no such queue, no such host, or there are no credentials. A role
            that may send but not ask is taken at its word, and so is a queue that is too busy to
            answer.
    """
    _ask_queue(options.queue_url, options.region, options.endpoint_url)


@lru_cache(maxsize=64)
def _ask_queue(queue_url: str, region: str | None, endpoint_url: str | None) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    from xorack.aws.client import error_code, is_transient

    asked = Options(queue_url, step="ask", region=region, endpoint_url=endpoint_url)
    try:
        asked.client().get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    except ClientError as error:
        if "NonExistentQueue" in error_code(error) or "QueueDoesNotExist" in error_code(error):
            raise InvalidOption("queueUrl", f"there is no queue {queue_url}") from None
        if "Denied" not in error_code(error) and not is_transient(error):
            raise InvalidOption("queueUrl", f"{queue_url}: {error}") from None
    except BotoCoreError as error:
        raise InvalidOption("queueUrl", f"{queue_url}: {error}") from None
