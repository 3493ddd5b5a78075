"""Reads what AWS knows of a deployed acker. Nothing here changes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.client import error_code
from xorack.aws.schema import ALIAS
from xorack.aws.stack import DescribedStack
from xorack.core.event import SOURCE
from xorack.ops.doctor.check import Facts, Unread

RECENT = timedelta(minutes=15)
"""Errors of the functions within this time are a finding: older ones may have been repaired."""
_RUNBOOK = "docs/operations.md#"
"""The description of each alarm of an acker names its runbook. Other alarms lack this text."""
_DENIED = re.compile("AccessDenied|AuthorizationError|NotAuthorized|UnauthorizedOperation")
_ABSENT = re.compile("NotFound|NonExist|DoesNotExist|NoSuch")
_UNSUPPORTED = re.compile("InvalidAction|NotImplemented|Unsupported|UnknownOperation")
_ERRORS = '{ $.level = "ERROR" || $.log_level = "ERROR" || $.errorMessage = * }'


class Reader:
    """Reads the facts about one stack."""

    def __init__(self, stack: DescribedStack, client: Callable[[str], Any]) -> None:
        self._stack = stack
        self._client = client
        self._denied: set[str] = set()

    def facts(self) -> Facts:
        """Read all facts. A fact that follows from another one is read after it."""
        read, output = self._read, self._stack.outputs.get
        table, bus = {"TableName": output("TableName")}, output("EventBusName")
        mappings = {"EventSourceArn": output("QueueArn")}
        facts: dict[str, Any] = {
            "stack": self._stack,
            "caller": read("sts", "get_caller_identity", "Arn"),
            "queue": self._queue(output("QueueUrl")),
            "dead letters": self._queue(output("DeadLetterQueueUrl")),
            "table": read("dynamodb", "describe_table", "Table", **table),
            "time to live": read(
                "dynamodb", "describe_time_to_live", "TimeToLiveDescription", **table
            ),
            "recovery": read(
                "dynamodb", "describe_continuous_backups", "ContinuousBackupsDescription", **table
            ),
            "mappings": read(
                "lambda", "list_event_source_mappings", "EventSourceMappings", **mappings
            ),
            "bus": read("events", "describe_event_bus", "Arn", Name=bus),
            "rules": self._rules(bus),
        }
        facts |= self._function("consumer", output("ConsumerName"))
        facts |= self._function("sweeper", output("SweeperName"))
        facts |= self._schedule(facts["sweeper"]) | self._alarms()
        return facts | {"keys": self._keys(facts), "denied": sorted(self._denied)}

    def _read(
        self, service: str, operation: str, part: str | None = None, /, **arguments: Any
    ) -> Any:
        """Return AWS's complete answer or a part of it, or an `Unread`."""
        if None in arguments.values():
            return Unread("unknown", "an output of the stack is missing")
        client = self._client(service)
        try:
            if client.can_paginate(operation):
                answer = client.get_paginator(operation).paginate(**arguments).build_full_result()
            else:
                answer = getattr(client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            return self._unread(service, error)
        return answer[part] if part else answer

    def _unread(self, service: str, error: Exception) -> Unread:
        code, text = error_code(error), " ".join(str(error).rpartition("operation: ")[2].split())
        if _DENIED.search(code) and isinstance(error, ClientError):
            self._denied.add(action := f"{service}:{error.operation_name}")
            return Unread("denied", f"you may not call {action}")
        if _UNSUPPORTED.search(code):
            return Unread("unsupported", f"this AWS cannot tell: {text}")
        return Unread("absent" if _ABSENT.search(code) else "unknown", text or code)

    def _each(self, items: Iterable[str], read: Callable[[str], Any]) -> Any:
        """Return the answers by item, or the first `Unread`."""
        answers = {item: read(item) for item in items}
        return next((one for one in answers.values() if isinstance(one, Unread)), answers)

    def _queue(self, url: str | None) -> Any:
        wanted = {"QueueUrl": url, "AttributeNames": ["All"]}
        return self._read("sqs", "get_queue_attributes", "Attributes", **wanted)

    def _function(self, name: str, function: str | None) -> dict[str, Any]:
        now = datetime.now(timezone.utc)
        live = {"FunctionName": function, "Qualifier": ALIAS}
        configuration = self._read("lambda", "get_function_configuration", **live)
        period = {"StartTime": now - RECENT, "EndTime": now, "Period": RECENT.seconds}

        def count(metric: str) -> Any:
            points = self._read(
                *("cloudwatch", "get_metric_statistics", "Datapoints"),
                **{"Namespace": "AWS/Lambda", "MetricName": metric, "Statistics": ["Sum"]},
                Dimensions=[{"Name": "FunctionName", "Value": function or "?"}],
                **period,
            )
            return points if isinstance(points, Unread) else sum(one["Sum"] for one in points)

        counts, last = self._each(("Errors", "Throttles", "Invocations"), count), ""
        if isinstance(configuration, dict) and isinstance(counts, dict) and counts["Errors"]:
            group = configuration.get("LoggingConfig", {}).get("LogGroup", "")
            last = self._last_error(group, int((now - RECENT).timestamp() * 1000))
        concurrency = self._read("lambda", "get_function_concurrency", FunctionName=function)
        return {
            name: configuration,
            f"{name} concurrency": concurrency,
            f"{name} counts": counts,
            f"{name} error": last,
        }

    def _last_error(self, group: str, since_ms: int) -> str:
        """Return the text of the last error in a log of JSON lines; "" without one."""
        with suppress(ClientError, BotoCoreError):
            wanted = {"startTime": since_ms, "filterPattern": _ERRORS, "limit": 100}
            found = self._client("logs").filter_log_events(logGroupName=group, **wanted)
            for event in reversed(found["events"]):
                with suppress(ValueError, KeyError, TypeError):
                    line = json.loads(event["message"])
                    return str(line.get("errorMessage") or line.get("why") or line["message"])[:300]
        return ""

    def _schedule(self, sweeper: Any) -> dict[str, Any]:
        """Read the rules that invoke the sweeper, and the policy that lets them."""
        if isinstance(sweeper, Unread):
            return {"schedule": sweeper, "permission": sweeper}
        alias = ":".join([*sweeper["FunctionArn"].split(":")[:7], ALIAS])
        names = self._read("events", "list_rule_names_by_target", "RuleNames", TargetArn=alias)
        if not isinstance(names, Unread):
            names = self._each(names, lambda name: self._read("events", "describe_rule", Name=name))
        return {
            "schedule": names,
            "permission": self._read("lambda", "get_policy", "Policy", FunctionName=alias),
        }

    def _rules(self, bus: str | None) -> Any:
        """Read the state and the targets of the bus's rules for events of chains."""
        rules = self._read("events", "list_rules", "Rules", EventBusName=bus)
        if isinstance(rules, Unread):
            return rules
        states = {
            rule["Name"]: rule["State"]
            for rule in rules
            if SOURCE in json.loads(rule.get("EventPattern", "{}")).get("source", [])
        }
        targets = self._each(
            states,
            lambda name: self._read(
                "events", "list_targets_by_rule", "Targets", Rule=name, EventBusName=bus
            ),
        )
        if isinstance(targets, Unread):
            return targets
        return {name: (state, targets[name]) for name, state in states.items()}

    def _alarms(self) -> dict[str, Any]:
        """Read the stack's alarms that have a runbook, and who subscribes to their topics."""
        where = {"StackName": self._stack.name}
        resources = self._read("cloudformation", "list_stack_resources", **where)
        if isinstance(resources, Unread):
            return {"alarms": resources, "subscriptions": resources}
        names = [
            resource["PhysicalResourceId"]
            for resource in resources["StackResourceSummaries"]
            if re.fullmatch("AWS::CloudWatch::.*Alarm", resource["ResourceType"])
        ]
        kinds = ["MetricAlarm", "CompositeAlarm"]
        described = self._read(
            "cloudwatch", "describe_alarms", AlarmNames=names[:100], AlarmTypes=kinds
        )
        if isinstance(described, Unread):
            return {"alarms": described, "subscriptions": described}
        found = [alarm for kind in kinds for alarm in described.get(f"{kind}s", ())]
        present = [alarm for alarm in found if _RUNBOOK in alarm.get("AlarmDescription", "")]
        gone = sorted({*names} - {alarm["AlarmName"] for alarm in found})
        topics = {one for alarm in present for one in alarm["AlarmActions"] if ":sns:" in one}
        return {
            "alarms": {"present": present, "gone": gone},
            "subscriptions": self._subscriptions(sorted(topics)),
        }

    def _subscriptions(self, topics: list[str]) -> Any:
        if not topics and ".amazonaws." not in self._client("sns").meta.endpoint_url:
            return Unread("unsupported", "an emulator notifies nobody of alarms")
        read, operation = self._read, ("sns", "list_subscriptions_by_topic", "Subscriptions")
        return self._each(topics, lambda topic: read(*operation, TopicArn=topic))

    def _keys(self, facts: Facts) -> Any:
        """Read the KMS keys that the queues, the table and the functions name."""
        known = {name: fact for name, fact in facts.items() if isinstance(fact, dict)}
        ids = {known.get(name, {}).get("KmsMasterKeyId") for name in ("queue", "dead letters")}
        ids |= {known.get(name, {}).get("KMSKeyArn") for name in ("consumer", "sweeper")}
        ids.add(known.get("table", {}).get("SSEDescription", {}).get("KMSMasterKeyArn"))
        read, operation = self._read, ("kms", "describe_key", "KeyMetadata")
        return self._each(sorted(filter(None, ids)), lambda key: read(*operation, KeyId=key))
