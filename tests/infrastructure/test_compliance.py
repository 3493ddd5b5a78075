"""cdk-nag's AwsSolutions pack and cfn-lint have nothing to say that was not answered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App, aws_sqs
from cdk_nag import AwsSolutionsChecks

from examples.own_stack.app import Warehouse
from infra.synth import ROOT, build

from .templates import Template

VARIANTS = [
    {},
    {
        "tracing": "true",
        "architecture": "x86_64",
        "deletion_protection": "false",
        "removal_policy": "destroy",
        "alarm_topic_arn": "arn:aws:sns:eu-west-1:123456789012:alarms",
        "batch_size": "10",
        "batch_window_seconds": "0",
        "dashboard": "false",
    },
]


@pytest.mark.parametrize("settings", VARIANTS)
def test_cdk_nag_is_content(settings: dict[str, str]) -> None:
    app, _ = build(settings)
    report = AwsSolutionsChecks(app).validate_scope(app)
    assert [(found.rule_name, found.description) for found in report.violations] == []
    assert report.success


def test_cdk_nag_is_content_with_the_example() -> None:
    settings = json.loads((ROOT / "examples" / "own_stack" / "cdk.json").read_text())
    app = App(context=settings["context"])
    Warehouse(app, "warehouse")
    report = AwsSolutionsChecks(app).validate_scope(app)
    assert [(found.rule_name, found.description) for found in report.violations] == []
    assert report.success


def test_cdk_nag_would_say() -> None:
    app, stack = build()
    aws_sqs.Queue(stack, "Careless")
    report = AwsSolutionsChecks(app).validate_scope(app)
    # No dead letters, no TLS: and what was acknowledged of the functions hides none of it.
    assert {found.rule_name for found in report.violations} == {
        "AwsSolutions-SQS3",
        "AwsSolutions-SQS4",
    }


def lint(template: Path) -> subprocess.CompletedProcess[str]:
    # W3005: the CDK makes functions depend on their role though they refer to it anyway.
    program = Path(sys.executable).with_name("cfn-lint")
    command = [str(program), "--ignore-checks", "W3005", "--", str(template)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("settings", VARIANTS)
def test_cfn_lint_is_content(synthesise: Callable[..., Template], settings: dict[str, str]) -> None:
    said = lint(synthesise(**settings).path)
    assert (said.returncode, said.stdout) == (0, ""), said.stdout + said.stderr


def test_cfn_lint_would_say(template: Template, tmp_path: Path) -> None:
    broken = json.loads(template.path.read_text())
    broken["Resources"][template.queue()[0]]["Properties"]["VisibilityTimeout"] = 43_201
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(broken))
    said = lint(path)
    assert said.returncode != 0
    assert "43201 is greater than the maximum of 43200" in said.stdout
