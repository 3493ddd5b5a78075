"""X-Ray subsegments of boto3's calls, sent to the daemon beside the function.

Only a function of a stack with `tracing` imports this; docs/adr/0034 says why it uses no SDK. The
format: https://docs.aws.amazon.com/xray/latest/devguide/xray-api-segmentdocuments.html
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import Any

MAX_SUBSEGMENTS = 100
"""Most subsegments of an invocation: X-Ray cuts traces off above 100 to 500 KB."""
_HEADER = b'{"format": "json", "version": 1}\n'
_CALL = "xorack_call"
_SHOWN = {"TableName": "table_name", "QueueUrl": "queue_url"}
"""Parameters of calls that X-Ray shows, and their names there."""


class Tracer:
    """Traces calls of boto3 clients. Threads may share one."""

    def __init__(self, daemon: str) -> None:
        """Use the daemon at an address such as ``169.254.100.1:2000``."""
        host, _, port = daemon.rpartition(":")
        self._daemon = (host, int(port))
        self._lock = threading.Lock()
        self._trace = ""
        self._left = 0

    def trace(self, client: Any) -> None:
        """Send a subsegment for each call of a client from now on."""
        client.meta.events.register("before-parameter-build", _start)
        client.meta.events.register("after-call", self._end)
        client.meta.events.register("after-call-error", self._end)

    def _end(
        self,
        context: dict[str, Any],
        http_response: Any = None,
        parsed: Any = None,
        exception: Exception | None = None,
        **_: Any,
    ) -> None:
        # Lambda's runtime sets the variable for each invocation.
        trace = os.environ.get("_X_AMZN_TRACE_ID", "")
        fields = dict(field.partition("=")[::2] for field in trace.split(";"))
        sampled = fields.get("Sampled") == "1" and {"Root", "Parent"} <= fields.keys()
        if not sampled or not self._may_send(trace):
            return
        document = {
            **context[_CALL],
            "type": "subsegment",
            "id": secrets.token_hex(8),
            "trace_id": fields["Root"],
            "parent_id": fields["Parent"],
            "end_time": time.time(),
        }
        if http_response is not None:
            document["http"] = {"response": {"status": http_response.status_code}}
            metadata = parsed.get("ResponseMetadata", {})
            document["aws"]["request_id"] = metadata.get("RequestId", "")
            document |= _flags(http_response.status_code, parsed.get("Error", {}).get("Code", ""))
        if exception is not None:
            # The text may have the call's URL, and that a callback's id: X-Ray gets the type alone.
            cause = {"id": secrets.token_hex(8), "type": type(exception).__name__}
            document["fault"] = True
            document["cause"] = {"working_directory": os.getcwd(), "exceptions": [cause]}
        # A trace is not worth a failure.
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(_HEADER + json.dumps(document).encode(), self._daemon)

    def _may_send(self, trace: str) -> bool:
        with self._lock:
            if trace != self._trace:
                self._trace, self._left = trace, MAX_SUBSEGMENTS
            self._left -= 1
            return self._left >= 0


def _start(params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
    """Keep the beginning of a call in its context."""
    shown = {field: params[name] for name, field in _SHOWN.items() if name in params}
    context[_CALL] = {
        "name": model.service_model.endpoint_prefix,
        "namespace": "aws",
        "start_time": time.time(),
        "aws": {"operation": model.name, "region": context["client_region"], **shown},
    }


def _flags(status: int, code: str) -> dict[str, bool]:
    flags = {
        "throttle": status == 429 or "Throttl" in code or "Throughput" in code,
        "error": 400 <= status < 500,
        "fault": status >= 500,
    }
    return {flag: True for flag, is_set in flags.items() if is_set}
