"""A DynamoDB table: calls, batch reads and pages, with classified errors.

It has no knowledge of chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws import schema
from xorack.aws.client import PerProcess, budget_of, error_code, is_transient, make_client
from xorack.aws.retry import RetryPolicy
from xorack.aws.table_check import check_definition, check_state
from xorack.core.errors import ArgumentError, UnavailableError

Item = dict[str, dict[str, Any]]
"""An item in DynamoDB's JSON: attribute name to type and value."""

_READ_BATCH = 100


class Table:
    """A table whose partition key is a string."""

    def __init__(
        self,
        name: str,
        partition_key: str,
        client: Any,
        policy: RetryPolicy | None = None,
        attributes: Sequence[str] = (),
    ) -> None:
        """Open a table. Without a client, one with the default credentials is made.

        ``policy`` limits the retries when many items are read. ``attributes`` are the attributes
        that are read besides the partition key; by default all.
        """
        texts = {"table_name": name, "partition_key": partition_key}
        for field, value in texts.items():
            if not isinstance(value, str) or not value:
                raise ArgumentError(field, value, f"the {field.replace('_', ' ')} of DynamoDB")
        if partition_key in schema.RESERVED:
            expected = "a name that is not an attribute of a chain"
            raise ArgumentError("partition_key", partition_key, expected)
        self.name = name
        self.partition_key = partition_key
        own = PerProcess(partial(make_client, "dynamodb"))
        self.client = own if client is None else client
        self._policy = policy or RetryPolicy(attempts=6)
        self._budget = budget_of(client)
        self.attributes = attributes

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation on this table; raise UnavailableError if a retry may help."""
        if "RequestItems" not in arguments:
            arguments["TableName"] = self.name
        try:
            response: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise (UnavailableError(error) if is_transient(error) else error) from error
        return response

    def refusal(self, operation: str, **arguments: Any) -> ClientError | None:
        """Make a call that has a condition; return the error if the condition is false."""
        try:
            self.call(operation, **arguments)
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            return error
        return None

    def check(self) -> bool:
        """Check with two read-only calls that this table can hold chains.

        Returns False if DynamoDB did not answer in time. The result of an earlier check then holds.
        """
        try:
            table = self.call("describe_table")["Table"]
            check_definition(self.name, table, self.partition_key)
            time_to_live = self.call("describe_time_to_live")["TimeToLiveDescription"]
        except UnavailableError:
            return False
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
            expected = "a table of this account and region"
            raise ArgumentError("table_name", self.name, expected) from error
        check_state(self.name, table, time_to_live)
        return True

    def find_arn(self) -> str:
        arn: str = self.call("describe_table")["Table"]["TableArn"]
        return arn

    def has_index(self) -> bool:
        """Return whether the table has the index of deadlines, which the sweeper reads."""
        indexes = self.call("describe_table")["Table"].get("GlobalSecondaryIndexes") or ()
        return any(index["IndexName"] == schema.DUE_INDEX for index in indexes)

    def key(self, value: str) -> Item:
        return {self.partition_key: {"S": value}}

    def key_of(self, item: Item) -> str:
        value: str = item[self.partition_key]["S"]
        return value

    def read(self, keys: Sequence[str], attributes: Sequence[str] = ()) -> Iterator[Item]:
        """Read items by key, consistently. Yield the existing ones in no order."""
        wanted_attributes = self.attributes or attributes
        options = {"ConsistentRead": True, **projection(self.partition_key, wanted_attributes)}
        if len(keys) == 1:
            response = self.call("get_item", Key=self.key(keys[0]), **options)
            if item := response.get("Item"):
                yield item
            return
        for at in range(0, len(keys), _READ_BATCH):
            wanted = [self.key(key) for key in keys[at : at + _READ_BATCH]]
            retry = self._policy.start(self._budget)
            while wanted:
                request = {self.name: {"Keys": wanted, **options}}
                response = self.call("batch_get_item", RequestItems=request)
                yield from response["Responses"].get(self.name, [])
                left = response.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
                # A response has at most 16 MB. Continue as long as each response has some items.
                if len(left) < len(wanted):
                    retry = self._policy.start(self._budget)
                elif not retry.again():
                    code = "ProvisionedThroughputExceededException"
                    error = {"Code": code, "Message": f"{len(left)} keys were not processed"}
                    raise UnavailableError(ClientError({"Error": error}, "BatchGetItem"))
                wanted = left

    def retried(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation, and repeat it while a retry may help."""
        return self._policy.start(self._budget).call(partial(self.call, operation, **arguments))

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a query or a scan that are not empty."""
        while True:
            page = self.retried(operation, **arguments)
            if page["Items"]:
                yield page
            if not (last := page.get("LastEvaluatedKey")):
                return
            arguments["ExclusiveStartKey"] = last


def projection(partition_key: str, attributes: Sequence[str]) -> dict[str, Any]:
    """Return the arguments for reading these attributes and the key.

    An empty list means all attributes.
    """
    if not attributes:
        return {}
    names = {"#key": partition_key, **{f"#{name}": name for name in attributes}}
    return {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}


def sdk_retried(error: ClientError) -> bool:
    """Return whether the SDK retried the call, so that an earlier attempt may have succeeded."""
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts"))


def ttl(until: int) -> dict[str, str]:
    """Return the TTL attribute's value: seconds, rounded up from milliseconds."""
    return {"N": str(until // 1000 + 1)}
