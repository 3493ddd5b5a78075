"""Without the answers of policy-lint.yml, exactly the findings that it accepts appear."""

import subprocess
import sys

import pytest
from aws_cdk import aws_sqs
from cdk_nag import AwsSolutionsChecks

from infra.synth import ROOT, build
from tools import policy_lint

pytestmark = pytest.mark.slow


def rules_of(report):
    return [violation.rule_name for violation in report.violations]


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
