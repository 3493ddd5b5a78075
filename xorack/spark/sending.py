"""Sending the requests of many chains from the tasks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from xorack.spark.errors import InvalidOption, NotSent, plain_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Queue", "Sent", "check_queue", "send"]

_REGION_OF_URL = re.compile(r"https://sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.|api\.aws)")


class Sent(NamedTuple):
    """Numbers of SQS messages, of the requests in them, and of the bytes of their bodies."""

    messages: int = 0
    requests: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Queue:
    """The queue of stamp requests; it travels to the tasks.

    Attributes:
        url: The queue's URL.
        region: Its region; by default the one in the URL, or that of the environment.
        endpoint_url: Another endpoint than that of AWS.
    """

    url: str
    region: str | None = None
    endpoint_url: str | None = None

    def client(self) -> Any:
        """Make a boto3 client for the queue.

        Raises:
            InvalidOption: The region is unknown, or the region or endpoint is invalid.
        """
        from botocore.exceptions import InvalidRegionError, NoRegionError

        from xorack.aws.client import make_client

        in_url = _REGION_OF_URL.match(self.url)
        settings: dict[str, str] = {}
        if region := self.region or (in_url[1] if in_url else None):
            settings["region_name"] = region
        if endpoint := self.endpoint_url or self._endpoint_in_url():
            settings["endpoint_url"] = endpoint
        try:
            return make_client("sqs", **settings)
        except NoRegionError:
            raise InvalidOption(
                "region", "is required: neither the queue's URL nor the environment names one"
            ) from None
        except InvalidRegionError as error:
            raise InvalidOption("region", str(error)) from None
        except ValueError as error:
            raise InvalidOption("endpoint_url", str(error)) from None

    def _endpoint_in_url(self) -> str | None:
        """Return the endpoint of a queue outside AWS; boto3 does not take it from the URL."""
        url = urlsplit(self.url)
        of_aws = (url.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))
        known = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
        return None if of_aws or known else f"{url.scheme}://{url.netloc}"


def check_queue(spark: SparkSession, queue: Queue) -> None:
    """Ask a task whether it can reach the queue.

    A role that may send and not ask is trusted, and so is a queue that is too busy to respond.

    Raises:
        InvalidOption: The queue does not exist, or a task has no credentials for it.
    """

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"problem": [_problem(queue)]})

    with plain_errors():
        row = spark.range(1).repartition(1).mapInArrow(check, "problem string").first()
    if row is not None and row["problem"] is not None:
        raise InvalidOption("queue_url", row["problem"])


def _problem(queue: Queue) -> str | None:
    from botocore.exceptions import BotoCoreError, ClientError

    from xorack.aws.client import error_code, is_transient

    try:
        queue.client().get_queue_attributes(QueueUrl=queue.url, AttributeNames=["QueueArn"])
    except ClientError as error:
        code = error_code(error)
        if "NonExistentQueue" in code or "QueueDoesNotExist" in code:
            return f"there is no queue {queue.url}"
        return None if "Denied" in code or is_transient(error) else f"{queue.url}: {error}"
    except BotoCoreError as error:
        return f"{queue.url}: {error}"
    return None


def send(requests: DataFrame, queue: Queue, cells: int | None) -> Sent:
    """Send requests from the tasks.

    Args:
        requests: A request a row. ``op``, ``tag`` and ``id``; ``units`` and ``fold``, which its
            stamp is made of, and optionally ``units_2`` and ``fold_2``, which are XORed into it;
            optionally ``started``, ``finished``, ``timeout``, ``idle_timeout``, ``detail`` (a JSON
            object in ASCII), ``reason``. A null leaves a field out.
        queue: The queue.
        cells: The cells of each table of traced stamps; None for plain stamps.

    Returns:
        What was sent. The messages of a retried task count once, though they may go out twice.

    Raises:
        NotSent: The queue did not accept all. Run it again: the ids are the same.
    """

    def send_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from xorack.aws.sqs import send_packed
        from xorack.core.message import pack_texts
        from xorack.spark.packing import request_texts

        count = 0

        def texts() -> Iterator[str]:
            nonlocal count
            for batch in batches:
                count += batch.num_rows
                yield from request_texts(batch, cells)

        messages, size = send_packed(queue.url, pack_texts(texts()), queue.client())
        sent = {"messages": [messages], "requests": [count], "bytes": [size]}
        yield pa.RecordBatch.from_pydict(sent)

    schema = "messages long, requests long, bytes long"
    with plain_errors(NotSent):
        totals = requests.mapInArrow(send_partition, schema).groupBy().sum().first()
    return Sent(*(total or 0 for total in totals or ()))
