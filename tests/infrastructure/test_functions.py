"""The functions: permissions, triggers, environment, runtime, logs."""

import json
import re

from infra.synth import ROOT


def test_no_policy_of_a_resource_allows_anybody(template):
    # The queues' policies deny only; the permission lets the rule invoke the sweeper.
    kinds = {resource["Type"] for resource in template.resources.values()}
    kinds = {kind for kind in kinds if kind.endswith(("Policy", "Permission", "Url", "Grant"))}
    assert kinds == {"AWS::SQS::QueuePolicy", "AWS::Lambda::Permission"}
    for policy in template.of("AWS::SQS::QueuePolicy").values():
        assert {one["Effect"] for one in policy["PolicyDocument"]["Statement"]} == {"Deny"}
    for resource in template.resources.values():
        assert not {"ResourcePolicy", "Policy"} & set(resource["Properties"]), resource["Type"]
    _, permission = template.one("AWS::Lambda::Permission")
    assert permission["Principal"] == "events.amazonaws.com"


def test_the_template_names_no_account_region_or_machine(template):
    text = json.dumps(template.body)
    assert str(ROOT) not in text
    assert not re.search(r"\b\d{12}\b|\b[a-z]{2}-[a-z]+-\d\b", text)


def test_new_settings_make_a_new_version(template, synthesise):
    versions = set(template.of("AWS::Lambda::Version"))
    # Three functions have another environment; their queue keeps its name.
    assert not versions & set(synthesise(retention_days="31").of("AWS::Lambda::Version"))
    # A rule on the queue changes no function.
    assert versions == set(synthesise(max_receive_count="6").of("AWS::Lambda::Version"))
