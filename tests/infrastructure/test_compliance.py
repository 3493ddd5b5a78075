"""cdk-nag's AwsSolutions pack and cfn-lint have no findings."""

import json

import pytest
from aws_cdk import App, aws_sqs
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs
from cfnlint.api import lint as cfn_lint

from examples.own_stack.app import Warehouse
from infra.synth import ROOT, build

from .conftest import VARIED
from .templates import Template


def nag(app: App) -> list[str]:
    """The rules of AwsSolutions that an app violates."""
    report = AwsSolutionsChecks(app).validate_scope(app)
    rules = [violation.rule_name for violation in report.violations]
    assert report.success is not bool(rules)
    return rules


@pytest.mark.parametrize("settings", [{}, {**VARIED, "dashboard": "false", "rollout": "canary"}])
def test_cdk_nag_has_no_findings(settings):
    assert nag(build(settings)[0]) == []


def test_cdk_nag_has_no_findings_in_the_example():
    settings = json.loads((ROOT / "examples" / "own_stack" / "cdk.json").read_text())
    app = App(context=settings["context"])
    Warehouse(app, "warehouse")
    assert nag(app) == []


def test_cdk_nag_sees_a_careless_queue():
    app, stack = build()
    aws_sqs.Queue(stack, "Careless")
    # The acknowledgements of the functions hide neither the dead letters nor TLS.
    assert set(nag(app)) == {"AwsSolutions-SQS3", "AwsSolutions-SQS4"}


def lint(template: Template) -> list[str]:
    """The findings of cfn-lint."""
    # W3005: the CDK makes functions depend on the role to which they refer.
    found = cfn_lint(json.dumps(template.body), config=ManualArgs(ignore_checks=["W3005"]))
    return [str(match) for match in found]


@pytest.mark.parametrize("name", ["template", "varied", "without_dashboard", "canary", "adopted"])
def test_cfn_lint_has_no_findings(request, name):
    assert lint(request.getfixturevalue(name)) == []


def test_cfn_lint_sees_an_invalid_timeout(template):
    body = json.loads(json.dumps(template.body))
    body["Resources"][template.queue()[0]]["Properties"]["VisibilityTimeout"] = 43_201
    (found,) = lint(Template(template.path, body))
    assert "43201 is greater than the maximum of 43200" in found
