"""Callbacks at a chain's end, to waiting Step Functions tasks and durable Lambda executions."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.client import NotAccepted, budget_of, error_code, is_transient, send_entries
from xorack.aws.log import log_chain
from xorack.aws.naming_time import NamingTime
from xorack.aws.retry import RetryPolicy
from xorack.core.chain import Chain
from xorack.core.event import event_detail
from xorack.core.ports import NO_TIME, Failure

_SECRET_CHARACTERS: Final = 8
"""The length of a token's beginning. A message that contains the beginning is not shown."""
_ERROR: Final = "ChainFailed"
"""The error name of a failed chain, for the `Catch` of a state machine."""


class _Service(NamedTuple):
    """A service with callbacks: its name in boto3, and its operations for acked and failed chains.

    The codes in ``over`` mean that the callback is gone. The task ended in another way, or an
    earlier call completed it and the response was lost.
    """

    client: str
    success: Callable[[Any, str, str], object]
    failure: Callable[[Any, str, str, str], object]
    over: frozenset[str]


CALLBACK_SERVICES: Final[Mapping[str, _Service]] = {
    "step_functions": _Service(
        "stepfunctions",
        lambda client, token, detail: client.send_task_success(taskToken=token, output=detail),
        lambda client, token, _, detail: client.send_task_failure(
            taskToken=token, error=_ERROR, cause=detail
        ),
        frozenset({"TaskDoesNotExist", "TaskTimedOut"}),
    ),
    "lambda": _Service(
        "lambda",
        lambda client, token, detail: client.send_durable_execution_callback_success(
            CallbackId=token, Result=detail.encode()
        ),
        lambda client, token, reason, detail: client.send_durable_execution_callback_failure(
            CallbackId=token,
            Error={"ErrorType": _ERROR, "ErrorMessage": reason, "ErrorData": detail},
        ),
        frozenset({"CallbackTimeoutException", "ResourceNotFoundException"}),
    ),
}
"""The services of callbacks by the kind in `xorack.core.request.Request.resume`."""


class CallbackSender:
    """A `xorack.core.ports.Publisher` that makes callbacks, one chain a call."""

    batch_size = 1

    def __init__(
        self,
        kind: str,
        client: Any,
        *,
        policy: RetryPolicy | None = None,
        naming: NamingTime | None = None,
    ) -> None:
        self.kind = kind
        self.client = client
        self.policy = policy or RetryPolicy(attempts=5)
        self._naming = naming or NamingTime(budget_of(client))

    def publish(self, chains: Sequence[Chain]) -> dict[str, Failure]:
        by_tag = {chain.tag: chain for chain in chains}
        return send_entries(by_tag, self._resume, self.policy, budget_of(self.client))

    def _resume(self, chains: Mapping[str, Chain]) -> dict[str, NotAccepted]:
        answers = {tag: self._call_back(chain) for tag, chain in chains.items()}
        return {tag: answer for tag, answer in answers.items() if answer is not None}

    def _call_back(self, chain: Chain) -> NotAccepted | None:
        """Make one callback; return None if the service accepted it."""
        service = CALLBACK_SERVICES[self.kind]
        token = json.loads(chain.reports.resume or "{}")[self.kind]
        if (event := self._naming.in_time(chain, event_detail)) is None:
            return NotAccepted(NO_TIME.reason, permanent=True, kind=NO_TIME.kind)
        detail = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        try:
            if chain.status == "acked":
                service.success(self.client, token, detail)
            else:
                service.failure(self.client, token, chain.reason or chain.status, detail)
        except AttributeError as error:  # an old boto3 in the runtime lacks this operation
            return NotAccepted(f"boto3: {error}", permanent=True, kind="refused")
        except ClientError as error:
            if is_transient(error):
                raise
            code, text = error_code(error), str(error)
            why = code if token[:_SECRET_CHARACTERS] in text else f"{code}: {text}"
            if code not in service.over:
                return NotAccepted(why, permanent=True, kind="refused")
            log_chain(logging.INFO, "the callback is gone", chain.tag, why=why)
            why = f"the callback is gone or was made already: {why}"
            return NotAccepted(why, permanent=True, kind="gone")
        except BotoCoreError as error:
            # The error's text has the URL of the call, which contains the secret callback id.
            return NotAccepted(error_code(error), not is_transient(error))
        return None
