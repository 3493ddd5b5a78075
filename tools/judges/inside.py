"""The judges of the checkout's own environment: cdk-nag and cfn-lint. They take a few seconds."""

from __future__ import annotations

import json
from typing import Any, Final
from unittest.mock import patch

import cdk_nag
from aws_cdk import Validations
from cfnlint.api import ManualArgs
from cfnlint.api import lint as cfn_lint

from tools.judges.stacks import Judged, judged_stacks
from tools.judges.table import Finding

PACKS: Final[dict[str, Any]] = {
    "AwsSolutions": cdk_nag.AwsSolutionsChecks,
    "HIPAA": cdk_nag.HIPAASecurityChecks,
    "NIST R4": cdk_nag.NIST80053R4Checks,
    "NIST R5": cdk_nag.NIST80053R5Checks,
    "PCI": cdk_nag.PCIDSS321Checks,
    "Serverless": cdk_nag.ServerlessChecks,
}
INSIDE: Final = (*PACKS, "cfn-lint")
_EVERYTHING: Final = ManualArgs(
    include_checks=["E", "I", "W"],
    include_experimental=True,
    configure_rules={
        "E3012": {"strict": True},
        "I3042": {"accountId": True, "partition": True, "region": True},
    },
    regions=["cn-north-1", "eu-west-1", "us-east-1", "us-gov-west-1"],
)


def unacknowledged() -> list[Judged]:
    """Build the stacks without what the constructs acknowledge: the table has all findings."""
    with patch.object(Validations, "acknowledge"):
        return judged_stacks()


def nag(judged: Judged) -> set[Finding]:
    """Return the findings of cdk-nag; its packs count as judges."""
    return {
        Finding(judge, _short(violation.rule_name), judged.placed(resource.construct_path))
        for judge, pack in PACKS.items()
        for violation in pack(judged.app).validate_scope(judged.app).violations
        for resource in violation.violating_resources
    }


def _short(rule: str) -> str:
    """Drop the pack's name from a rule's."""
    return rule.partition("-")[2]


def lint(judged: Judged) -> set[Finding]:
    """Return the findings of cfn-lint with all rules, experimental ones included.

    Without the resources' metadata, which would tell it to skip rules for the CDK's templates.
    """
    matches = cfn_lint(json.dumps(judged.plain), config=_EVERYTHING)
    return {Finding("cfn-lint", match.rule.id, _place(judged, match.path)) for match in matches}


def _place(judged: Judged, path: Any) -> str:
    """Return the resource at a path of the template, or the section."""
    section, *rest = path or ["Template"]
    return judged.named(str(rest[0])) if section == "Resources" and rest else str(section)


def inside_findings(judged: Judged) -> set[Finding]:
    """Return the findings of cdk-nag and cfn-lint."""
    return nag(judged) | lint(judged)
