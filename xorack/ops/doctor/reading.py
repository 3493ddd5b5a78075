"""Reads facts about a deployed acker from AWS, without changing anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from xorack.aws.client import error_code
from xorack.aws.schema import ALIAS
from xorack.aws.stack import DescribedStack
from xorack.core.event import SOURCE
from xorack.ops.doctor.check import Facts, Unread

RECENT = timedelta(minutes=15)
"""The checks count the functions' errors of this time. Causes of older ones may be repaired."""
_ALARMS = 100
"""The most names of alarms in a call."""
_RUNBOOK = "docs/operations.md#"
"""The description of each of the acker's alarms has this text. Other alarms do not have it."""
_DENIED = re.compile("AccessDenied|AuthorizationError|NotAuthorized|UnauthorizedOperation")
_ABSENT = re.compile("NotFound|NonExist|DoesNotExist|NoSuch")
_UNSUPPORTED = re.compile("InvalidAction|NotImplemented|Unsupported|UnknownOperation")
_ERRORS = '{ $.level = "ERROR" || $.log_level = "ERROR" || $.errorMessage = * }'


_TABLE, _BUS = ("TableName", "TableName"), ("Name", "EventBusName")
_CONSUMER, _SWEEPER = ("FunctionName", "ConsumerName"), ("FunctionName", "SweeperName")
_ATTRIBUTES, _MAPPINGS = "get_queue_attributes", "list_event_source_mappings"
_CONFIGURATION, _CONCURRENCY = "get_function_configuration", "get_function_concurrency"
_READS = (
    ("queue", "sqs", _ATTRIBUTES, "Attributes", "QueueUrl", "QueueUrl"),
    ("dead letters", "sqs", _ATTRIBUTES, "Attributes", "QueueUrl", "DeadLetterQueueUrl"),
    ("table", "dynamodb", "describe_table", "Table", *_TABLE),
    ("time to live", "dynamodb", "describe_time_to_live", "TimeToLiveDescription", *_TABLE),
    (
        "recovery",
        "dynamodb",
        "describe_continuous_backups",
        "ContinuousBackupsDescription",
        *_TABLE,
    ),
    ("consumer", "lambda", _CONFIGURATION, "", *_CONSUMER),
    ("consumer concurrency", "lambda", _CONCURRENCY, "", *_CONSUMER),
    ("sweeper", "lambda", _CONFIGURATION, "", *_SWEEPER),
    ("sweeper concurrency", "lambda", _CONCURRENCY, "", *_SWEEPER),
    ("permission", "lambda", "get_policy", "Policy", *_SWEEPER),
    ("mappings", "lambda", _MAPPINGS, "EventSourceMappings", "EventSourceArn", "QueueArn"),
    ("bus", "events", "describe_event_bus", "Arn", *_BUS),
)
"""Facts that need one argument: the fact's name, the service, the operation, the part of the
answer, the argument, and the stack's output with its value."""
_CONSTANTS: Mapping[str, Mapping[str, Any]] = {
    "get_queue_attributes": {"AttributeNames": ["All"]},
    "get_function_configuration": {"Qualifier": ALIAS},
    "get_policy": {"Qualifier": ALIAS},
}


class Reader:
    """Reads the facts about one stack."""

    def __init__(self, stack: DescribedStack, client: Callable[[str], Any]) -> None:
        self._stack = stack
        self._client = client
        self._denied: set[str] = set()
        self._service = ""
        self._facts: dict[str, Any] = {"stack": stack}

    def facts(self) -> Facts:
        """Read all facts. A fact that depends on another fact is read after it."""
        for name, read in self._readers():
            try:
                self._facts[name] = read()
            except ParamValidationError:
                self._facts[name] = Unread("unknown", "an output of the stack is missing")
            except (ClientError, BotoCoreError) as error:
                self._facts[name] = self._unread(error)
        return {**self._facts, "denied": sorted(self._denied)}

    def _readers(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        output = self._stack.outputs.get
        for name, service, operation, part, argument, key in _READS:
            arguments = {argument: output(key), **_CONSTANTS.get(operation, {})}
            yield name, partial(self._call, service, operation, part, **arguments)
        yield "caller", partial(self._call, "sts", "get_caller_identity", "Arn")
        for name, key in (("consumer", "ConsumerName"), ("sweeper", "SweeperName")):
            yield f"{name} counts", partial(self._counts, output(key))
            yield f"{name} error", partial(self._last_error, name)
        yield "schedule", self._schedule
        yield "rules", partial(self._rules, output("EventBusName"))
        yield "alarms", self._alarms
        yield "subscriptions", self._subscriptions
        yield "keys", self._keys

    def _call(self, service: str, operation: str, part: str = "", /, **arguments: Any) -> Any:
        """Return AWS's answer with all its pages, or only the `part` of it with this name."""
        self._service, client = service, self._client(service)
        if client.can_paginate(operation):
            answer = client.get_paginator(operation).paginate(**arguments).build_full_result()
        else:
            answer = getattr(client, operation)(**arguments)
        return answer[part] if part else answer

    def _unread(self, error: ClientError | BotoCoreError) -> Unread:
        code, text = error_code(error), " ".join(str(error).rpartition("operation: ")[2].split())
        if _DENIED.search(code) and isinstance(error, ClientError):
            self._denied.add(action := f"{self._service}:{error.operation_name}")
            return Unread("denied", f"you may not call {action}")
        if _UNSUPPORTED.search(code):
            return Unread("unsupported", f"this AWS does not support it: {text}")
        return Unread("absent" if _ABSENT.search(code) else "unknown", text)

    def _known(self, name: str) -> dict[str, Any]:
        """Return a fact that was read before, or an empty mapping if it could not be read."""
        fact = self._facts[name]
        return fact if isinstance(fact, dict) else {}

    def _counts(self, function: str | None) -> dict[str, float]:
        now = datetime.now(timezone.utc)
        period = {"StartTime": now - RECENT, "EndTime": now, "Period": RECENT.seconds}
        of_function = [{"Name": "FunctionName", "Value": function}]
        wanted = {"Namespace": "AWS/Lambda", "Dimensions": of_function, "Statistics": ["Sum"]}

        def count(metric: str) -> float:
            call = partial(self._call, "cloudwatch", "get_metric_statistics", "Datapoints")
            return float(sum(point["Sum"] for point in call(MetricName=metric, **wanted, **period)))

        return {metric: count(metric) for metric in ("Errors", "Throttles", "Invocations")}

    def _last_error(self, name: str) -> str:
        """Return the text of a function's latest error in its log; empty without one."""
        group = self._known(name).get("LoggingConfig", {}).get("LogGroup")
        if not group or not self._known(f"{name} counts").get("Errors"):
            return ""
        since = int((datetime.now(timezone.utc) - RECENT).timestamp() * 1000)
        wanted = {"startTime": since, "filterPattern": _ERRORS, "limit": 100}
        answer = self._client("logs").filter_log_events(logGroupName=group, **wanted)
        for event in reversed(answer["events"]):
            with suppress(ValueError, KeyError, TypeError):
                line = json.loads(event["message"])
                return str(line.get("errorMessage") or line.get("why") or line["message"])[:300]
        return ""

    def _schedule(self) -> dict[str, Any]:
        """Read the rules that invoke the sweeper."""
        parts = self._known("sweeper").get("FunctionArn", "").split(":")
        if len(parts) < 7:
            return {}
        target = {"TargetArn": ":".join([*parts[:7], ALIAS])}
        names = self._call("events", "list_rule_names_by_target", **target)["RuleNames"]
        return {name: self._call("events", "describe_rule", Name=name) for name in names}

    def _rules(self, bus: str | None) -> dict[str, Any]:
        """Read the state and the targets of the bus's rules for events of the table's chains."""
        where, table = {"EventBusName": bus}, self._stack.outputs.get("TableArn")
        rules = {}
        for rule in self._call("events", "list_rules", **where)["Rules"]:
            pattern = json.loads(rule.get("EventPattern", "{}"))
            is_for_chains = SOURCE in pattern.get("source", [])
            if is_for_chains and table in pattern.get("resources", [table]):
                name = rule["Name"]
                targets = self._call("events", "list_targets_by_rule", Rule=name, **where)
                rules[name] = (rule["State"], targets["Targets"])
        return rules

    def _alarms(self) -> dict[str, Any]:
        """Read the stack's alarms that have a runbook."""
        where = {"StackName": self._stack.name}
        resources = self._call("cloudformation", "list_stack_resources", **where)
        names = [
            resource["PhysicalResourceId"]
            for resource in resources["StackResourceSummaries"]
            if re.fullmatch("AWS::CloudWatch::.*Alarm", resource["ResourceType"])
            and "PhysicalResourceId" in resource  # its creation may have failed
        ]
        kinds, alarms = ["MetricAlarm", "CompositeAlarm"], []
        for first in range(0, len(names), _ALARMS):
            wanted = {"AlarmNames": names[first : first + _ALARMS], "AlarmTypes": kinds}
            answer = self._call("cloudwatch", "describe_alarms", **wanted)
            alarms += [*answer.get("MetricAlarms", ()), *answer.get("CompositeAlarms", ())]
        present = [alarm for alarm in alarms if _RUNBOOK in alarm.get("AlarmDescription", "")]
        gone = sorted({*names} - {alarm["AlarmName"] for alarm in alarms})
        return {"present": present, "gone": gone}

    def _subscriptions(self) -> Any:
        """Read the subscriptions of the alarms' topics."""
        alarms = self._known("alarms").get("present", ())
        topics = {
            action for alarm in alarms for action in alarm["AlarmActions"] if ":sns:" in action
        }
        if not topics and ".amazonaws." not in self._client("sns").meta.endpoint_url:
            return Unread("unsupported", "an emulator does not notify anyone of alarms")
        call, operation = self._call, ("sns", "list_subscriptions_by_topic")
        return {topic: call(*operation, TopicArn=topic)["Subscriptions"] for topic in topics}

    def _keys(self) -> dict[str, Any]:
        """Read the KMS keys that the queues, the table and the functions name."""
        ids = {self._known(name).get("KmsMasterKeyId") for name in ("queue", "dead letters")}
        ids |= {self._known(name).get("KMSKeyArn") for name in ("consumer", "sweeper")}
        ids.add(self._known("table").get("SSEDescription", {}).get("KMSMasterKeyArn"))
        named = sorted(filter(None, ids))
        return {key: self._call("kms", "describe_key", KeyId=key)["KeyMetadata"] for key in named}
