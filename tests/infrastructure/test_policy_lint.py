"""Without the answers of policy-lint.yml, exactly the findings that it accepts appear."""

import subprocess
import sys
from unittest.mock import patch

import pytest
from aws_cdk import Validations, aws_sqs
from cdk_nag import AwsSolutionsChecks

from infra.synth import ROOT, build
from tools import policy_lint

pytestmark = pytest.mark.slow

OUTSIDE = "CKV_", "W3005"
"""Beginnings of the rules of checkov and cfn-lint."""


def disagreements(found):
    """Return findings without an answer, and patterns of answers without a finding."""
    answers = policy_lint.answers()
    unanswered = [
        (rule, stack, place)
        for rule, stack, place in found
        if not any(rule in one.rules and one.covers(stack, place) for one in answers)
    ]
    idle = [
        (rule, pattern)
        for one in answers
        for rule in one.rules
        for pattern in one.at
        if not rule.startswith(OUTSIDE)
        and not any(
            rule == finding[0] and policy_lint.Answer([rule], [pattern], "").covers(*finding[1:])
            for finding in found
        )
    ]
    return unanswered, idle


def rules_of(report):
    return [violation.rule_name for violation in report.violations]


def test_cdk_nag_finds_what_is_answered_and_no_more(tmp_path):
    with patch.object(Validations, "acknowledge"):
        apps = policy_lint.apps(tmp_path)
    found, of_aws_solutions = set(), set()
    for app in apps:
        places = {
            one.construct.node.path: (one.stack, one.place) for one in policy_lint.resources(app)
        }
        for name, pack in policy_lint.PACKS.items():
            for violation in pack(app).validate_scope(app).violations:
                rule = violation.rule_name.removeprefix(f"{name}-")
                if name == "AwsSolutions":
                    of_aws_solutions.add(rule)
                    continue
                found |= {
                    (rule, *places[resource.construct_path])
                    for resource in violation.violating_resources
                }
    assert disagreements(found) == ([], [])
    # The constructs acknowledge these: see the next test.
    account = "<AWS::Region>:<AWS::AccountId>"
    resumed = (f"lambda:{account}:function", f"states:{account}:stateMachine")
    wildcards = ("*", *(f"arn:<AWS::Partition>:{one}:*" for one in resumed))
    assert of_aws_solutions == {"L1", *(f"IAM5[Resource::{one}]" for one in wildcards)}


def test_the_constructs_acknowledge_the_findings_of_aws_solutions(tmp_path):
    for app in policy_lint.apps(tmp_path):
        assert rules_of(AwsSolutionsChecks(app).validate_scope(app)) == []
    app, stack = build()
    aws_sqs.Queue(stack, "Careless")
    # The acknowledgements of the functions hide neither the dead letters nor TLS.
    rules = rules_of(AwsSolutionsChecks(app).validate_scope(app))
    assert set(rules) == {"AwsSolutions-SQS3", "AwsSolutions-SQS4"}


@pytest.mark.timeout(600)  # the first time, it installs checkov
def test_policy_lint_passes():
    subprocess.run(["make", "policy-lint", f"PYTHON={sys.executable}"], cwd=ROOT, check=True)
