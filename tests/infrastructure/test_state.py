"""The stateful resources (table, queues, bus, logs), names, and versions of the functions."""

import json
import re

import pytest

from infra.synth import ROOT
from tests.support.in_process import MAX_RECEIVES, table_definition
from xorack.aws import schema

from .templates import STATEFUL


def test_logical_ids_of_stateful_resources_stay(template):
    # CloudFormation replaces a resource whose id changes, and its contents are lost.
    assert {name: kind for kind in STATEFUL for name in template.of(kind)} == {
        "AckerChainsTable61387BD4": "AWS::DynamoDB::Table",
        "AckerStampsDeadLettersE4652E86": "AWS::SQS::Queue",
        "AckerStampsQueueFC65C606": "AWS::SQS::Queue",
        "AckerEventsBus81E389B8": "AWS::Events::EventBus",
        "AckerConsumerPythonLogs026A0A40": "AWS::Logs::LogGroup",
        "AckerSweeperPythonLogs5E8C8284": "AWS::Logs::LogGroup",
    }
    assert template.queue()[0] == "AckerStampsQueueFC65C606"


def test_settings_do_not_move_stateful_resources(template, varied, minimal):
    for kind in STATEFUL:
        assert set(varied.of(kind)) == set(template.of(kind))
    for kind in STATEFUL[:3]:
        assert minimal.of(kind) == template.of(kind)


def test_only_bus_and_dashboard_have_physical_names(full, template, varied):
    # Lambda's other resources refer to a function, or are named within it.
    names = {
        (resource["Type"].rpartition(":")[2], key)
        for resource in full.resources.values()
        for key in resource["Properties"]
        if re.fullmatch(NAMES, key) and not re.match("AWS::Lambda::(?!Function)", resource["Type"])
    }
    assert names == {("EventBus", "Name"), ("Dashboard", "DashboardName")}
    # The CDK builds the bus's name from the stack's: two stacks have two buses.
    assert (template.bus()[1]["Name"], varied.bus()[1]["Name"]) == ("xorack", "other")


NAMES = "((Table|Queue|Dashboard|LogGroup|Role|Alarm|ManagedPolicy|Group|Function)?Name)"


@pytest.mark.parametrize(
    ("settings", "table"),
    [({}, "Retain"), ({"deletion_protection": "false"}, "RetainExceptOnCreate")],
)
def test_a_failed_first_deployment_leaves_at_most_the_table_behind(synthesise, settings, table):
    made = synthesise(**settings)
    assert made.table()[1]["DeletionProtectionEnabled"] is (not settings)
    fates = {
        name: resource["DeletionPolicy"]
        for name, resource in made.resources.items()
        if resource.get("DeletionPolicy", "Delete") != "Delete"
    }
    # A rollback that has to delete a protected table fails, and blocks the next deployment.
    assert fates.pop(made.table()[0]) == table
    kept = {name for kind in ("AWS::SQS::Queue", "AWS::Logs::LogGroup") for name in made.of(kind)}
    assert fates == dict.fromkeys(kept, "RetainExceptOnCreate")


def test_the_template_names_no_account_region_or_machine(template):
    text = json.dumps(template.body)
    assert str(ROOT) not in text
    assert not re.search(r"\b\d{12}\b|\b[a-z]{2}-[a-z]+-\d\b", text)


@pytest.mark.parametrize(("name", "key"), [("template", "tag"), ("varied", "file")])
def test_the_handwritten_definitions_are_the_templates(request, name, key):
    template, handwritten = request.getfixturevalue(name), table_definition(key)
    (_, table), (_, queue) = template.table(), template.queue()
    (index,) = table["GlobalSecondaryIndexes"]
    plain = {name: index[name] for name in index if name != "ContributorInsightsSpecification"}
    found = {**table, "GlobalSecondaryIndexes": [plain]}
    assert {name: found[name] for name in handwritten} == handwritten
    assert table["TimeToLiveSpecification"]["AttributeName"] == schema.EXPIRES_AT
    assert name == "varied" or int(queue["RedrivePolicy"]["maxReceiveCount"]) == MAX_RECEIVES
