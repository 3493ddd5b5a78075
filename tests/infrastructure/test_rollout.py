"""Versions, aliases, and the canary."""

import io
import json
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from lambda_src import hook


def test_new_code_or_new_settings_make_a_new_version(template, synthesise):
    versions = set(template.of("AWS::Lambda::Version"))
    # Three functions have another environment; their queue keeps its name.
    assert not versions & set(synthesise(retention_days="31").of("AWS::Lambda::Version"))
    # A rule on the queue changes no function.
    assert versions == set(synthesise(max_receive_count="6").of("AWS::Lambda::Version"))


@pytest.mark.parametrize("fails", [None, "consumer", "sweeper", "denied"])
def test_the_hook_tells_codedeploy_whether_the_new_versions_work(monkeypatch, fails):
    calls, told = [], []

    def invoke(FunctionName, Payload):
        calls.append((FunctionName, json.loads(Payload)))
        if fails == "denied":
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "Invoke")
        error = {"FunctionError": "Unhandled"} if FunctionName == fails else {}
        return {"Payload": io.BytesIO(b"{}"), **error}

    clients = {
        "lambda": SimpleNamespace(invoke=invoke),
        "codedeploy": SimpleNamespace(
            put_lifecycle_event_hook_execution_status=lambda **answer: told.append(answer)
        ),
    }
    monkeypatch.setattr(hook, "make_client", lambda service, **_: clients[service])
    for name in ("consumer", "sweeper"):
        monkeypatch.setenv(f"{name.upper()}_VERSION", name)
    hook.handler({"DeploymentId": "d", "LifecycleEventHookExecutionId": "e"}, None)
    assert calls == [("consumer", {"Records": []}), ("sweeper", {})]
    status = "Failed" if fails else "Succeeded"
    answer = {"deploymentId": "d", "lifecycleEventHookExecutionId": "e", "status": status}
    assert told == [answer]
