"""CodeDeploy's hook before traffic: the new versions run once, the consumer with an empty batch.

A canary alone may never reach the sweeper: of 15 sweeps none goes to a tenth of the traffic with
the probability 0.2.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lambda_src.logs import set_up_logs
from xorack.aws.client import make_client

_LOG = logging.getLogger("xorack")
# A version may take as long as Lambda lets it, and a second call would be a second run.
_CONFIG = Config(read_timeout=900, retries={"total_max_attempts": 1})
_EVENTS = {"CONSUMER_VERSION": {"Records": []}, "SWEEPER_VERSION": {}}
set_up_logs(os.environ.get("POWERTOOLS_SERVICE_NAME") or "xorack")


def handler(event: dict[str, str], context: Any) -> None:
    """Invoke the new versions, and tell CodeDeploy whether they work.

    Without an answer that it takes, CodeDeploy waits for an hour.
    """
    del context
    client = make_client("lambda", config=_CONFIG)
    works = [_works(client, os.environ[name], sent) for name, sent in _EVENTS.items()]
    make_client("codedeploy").put_lifecycle_event_hook_execution_status(
        deploymentId=event["DeploymentId"],
        lifecycleEventHookExecutionId=event["LifecycleEventHookExecutionId"],
        status="Succeeded" if all(works) else "Failed",
    )


def _works(client: Any, version: str, event: dict[str, Any]) -> bool:
    try:
        answer = client.invoke(FunctionName=version, Payload=json.dumps(event).encode())
        why = answer["Payload"].read().decode() if "FunctionError" in answer else ""
    except (BotoCoreError, ClientError) as error:
        why = str(error)
    if why:
        _LOG.error("new version failed", extra={"version": version, "why": why})
    return not why
