"""cdk-nag and cfn-lint find only what docs/security.md answers; see also test_judges.py."""

import pytest
from aws_cdk import aws_sqs
from cdk_nag import AwsSolutionsChecks

from infra.synth import build
from tools.judges.inside import INSIDE, lint, nag, unacknowledged
from tools.judges.stacks import Judged, example, with_settings
from tools.judges.table import PAGE, outdated, read_table, unanswered

pytestmark = pytest.mark.thorough


def test_each_finding_has_an_answer_and_each_answer_a_finding():
    rows = read_table(PAGE.read_text(encoding="utf-8"))
    # cfn-lint takes a second or two each: `make judges` shows it all stacks.
    linted = ("defaults", "example")
    found = {
        judged: nag(judged) | (lint(judged) if judged.name in linted else set())
        for judged in unacknowledged()
    }
    assert not unanswered([one for findings in found.values() for one in findings], rows)
    assert not outdated(found, rows, set(INSIDE))


def of_aws_solutions(judged: Judged) -> list[str]:
    """The rules of AwsSolutions that a stack violates and does not acknowledge."""
    report = AwsSolutionsChecks(judged.app).validate_scope(judged.app)
    rules = [violation.rule_name for violation in report.violations]
    assert report.success is not bool(rules)
    return rules


def varied() -> Judged:
    settings = {"monitoring": "minimal", "resume": "all", "rollout": "canary", "tracing": True}
    return with_settings("varied", set(), **settings)


@pytest.mark.parametrize("make", [varied, example])
def test_the_constructs_acknowledge_the_findings_of_aws_solutions(make):
    assert of_aws_solutions(make()) == []


def test_cdk_nag_sees_a_careless_queue():
    app, stack = build()
    aws_sqs.Queue(stack, "Careless")
    # The acknowledgements of the functions hide neither the dead letters nor TLS.
    assert set(of_aws_solutions(Judged("careless", app, stack))) == {
        "AwsSolutions-SQS3",
        "AwsSolutions-SQS4",
    }
