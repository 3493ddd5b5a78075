"""The judges and their table: checkov and parliament run in an environment of their own."""

import sys
from pathlib import Path

import pytest
from aws_cdk import App, Stack, aws_iam, aws_sqs

from tools.judges.inside import INSIDE, inside_findings, lint, nag, unacknowledged
from tools.judges.outside import OUTSIDE, JudgeError, Offline, outside_findings
from tools.judges.policies import policies, resolved
from tools.judges.stacks import Judged
from tools.judges.table import HEAD, PAGE, Finding, outdated, read_table, unanswered


def table(*rows: str) -> str:
    return "\n".join(("Text.", "", HEAD, "| --- | --- | --- | --- |", *rows, "", "| no | row |"))


@pytest.mark.slow
def test_all_judges_find_what_the_table_answers_and_no_more():
    rows = read_table(PAGE.read_text(encoding="utf-8"))
    stacks = unacknowledged()
    outside = outside_findings(stacks)
    found = {judged: outside[judged] | inside_findings(judged) for judged in stacks}
    assert not unanswered([one for findings in found.values() for one in findings], rows)
    assert not outdated(found, rows, {*INSIDE, *OUTSIDE})


def careless() -> Judged:
    """A stack with a queue, a role and a secret that every judge objects to."""
    app = App(context={"aws:cdk:enable-path-metadata": True})
    stack = Stack(app, "careless")
    queue = aws_sqs.Queue(stack, "Queue")
    stack.template_options.metadata = {"key": "AKIA" + "Z7QPRS2LMNTUVWXY"}
    role = aws_iam.Role(stack, "Role", assumed_by=aws_iam.AccountRootPrincipal())
    role.add_to_policy(aws_iam.PolicyStatement(actions=["iam:PassRole", "sqs:*"], resources=["*"]))
    queue.add_to_resource_policy(
        aws_iam.PolicyStatement(
            actions=["sqs:NoSuchAction"],
            principals=[aws_iam.AnyPrincipal()],
            resources=[queue.queue_arn],
        )
    )
    return Judged("careless", app, stack)


@pytest.mark.slow
def test_checkov_and_parliament_see_a_careless_stack():
    judged = careless()
    (found,) = outside_findings([judged]).values()
    assert {
        Finding("checkov", "CKV_AWS_27", "careless:Queue"),
        Finding("checkov", "CKV_AWS_111", "careless:Role/DefaultPolicy"),
        Finding("parliament", "RESOURCE_STAR", "careless:Role/DefaultPolicy"),
        Finding("parliament", "UNKNOWN_ACTION[sqs:NoSuchAction]", "careless:Queue/Policy"),
    } <= found
    assert any(one.rule.startswith("CKV_SECRET") for one in found)


def test_cdk_nag_and_cfn_lint_see_a_careless_stack():
    judged = careless()
    assert {
        Finding("HIPAA", "IAMNoInlinePolicy", "careless:Role/DefaultPolicy"),
        Finding("Serverless", "SQSRedrivePolicy", "careless:Queue"),
    } <= nag(judged)
    queue = judged.template["Resources"][judged.stack.get_logical_id(
        judged.stack.node.find_child("Queue").node.default_child
    )]  # fmt: skip
    queue["Properties"] = {"VisibilityTimeout": 43_201}
    assert Finding("cfn-lint", "E3034", "careless:Queue") in lint(judged)


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.getaddrinfo('localhost', 9)",
        # What it asks for in vain may be optional to it.
        "import contextlib, socket\n"
        "with contextlib.suppress(OSError): socket.socket().connect(('127.0.0.1', 9))",
    ],
)
def test_a_judge_that_connects_is_an_error(tmp_path, code):
    offline = Offline(tmp_path, Path(sys.executable).parent)
    with pytest.raises(JudgeError, match=r"tried to connect: \('(127.0.0.1|localhost)', 9\)"):
        offline.run("python", "-c", code)


@pytest.mark.parametrize("code", ["raise SystemExit(2)", "import sys; print(1, file=sys.stderr)"])
def test_a_judge_that_fails_is_an_error(tmp_path, code):
    with pytest.raises(JudgeError, match="python failed"):
        Offline(tmp_path, Path(sys.executable).parent).run("python", "-c", code)


# -- the table -------------------------------------------------------------------------------------

ROW = "| A B, C `R1`, `R2`; D `R3[x]` | `*/Function`, `Queue` | `key` | because |"


def test_a_row_covers_its_rules_on_its_resources():
    (row,) = read_table(table(ROW))
    judges = ("A B", "R1"), ("A B", "R2"), ("C", "R1"), ("C", "R2"), ("D", "R3[x]")
    assert row.rules == set(judges)
    assert row.cures == {"key"}
    assert all(row.covers(Finding(*one, "Consumer/Function")) for one in judges)
    assert not row.covers(Finding("D", "R1", "Queue"))
    assert not row.covers(Finding("C", "R1", "Queue/Policy"))


@pytest.mark.parametrize(
    "row",
    ["| A `R` | `Queue` | - | ? |", "| A | `Queue` | - | because |", "| A `R` | Queue | - | so |",
     "| A `R` | `Queue` | because |"],
)  # fmt: skip
def test_a_malformed_row_is_named(row):
    with pytest.raises(ValueError, match=r"expected rules, resources.*\| A "):
        read_table(table(row))
    with pytest.raises(ValueError, match="no table begins with"):
        read_table(row)


FOUND = [Finding("C", "R1", "Queue"), Finding("C", "R9", "Queue"), Finding("C", "R9", "Other")]


def test_findings_without_a_row_become_rows_without_a_reason():
    assert unanswered(FOUND, read_table(table(ROW))) == ["| C `R9` | `Other`, `Queue` | - | ? |"]


@pytest.mark.parametrize(
    ("given", "judges", "lines"),
    [
        (set(), {"A B"}, ["A B `R1`", "A B `R2`"]),
        (set(), {"C"}, ["C `R2`"]),
        ({"key", "tracing"}, {"C"}, ["C `R2`", "not gone with key: | C `R1` | `Queue` |"]),
        ({"tracing"}, {"A B", "C", "D"},
         ["A B `R1`", "A B `R2`", "C `R2`", "D `R3[x]`", "on `*/Function`"]),
    ],
)  # fmt: skip
def test_rows_that_do_not_hold_are_named(given, judges, lines):
    judged = Judged("one", App(), Stack(), frozenset(given))
    named = outdated({judged: FOUND}, read_table(table(ROW)), judges)
    assert len(named) == len(lines)
    assert all(line in name for line, name in zip(lines, named, strict=True))


# -- policies --------------------------------------------------------------------------------------


def test_policies_are_judged_with_arns():
    kinds = {"Q": "AWS::SQS::Queue", "T": "AWS::SNS::Topic"}
    resources = {name: {"Type": kind} for name, kind in kinds.items()}
    queue = {"Fn::GetAtt": ["Q", "Arn"]}
    statement = {
        "Resource": [queue, {"Ref": "T"}, {"Fn::Join": ["", [queue, "/", {"Ref": "Q"}]]}],
        "Principal": {"Service": {"Fn::Join": [".", ["logs", {"Ref": "AWS::Region"}]]}},
    }
    here = "eu-west-1:123456789012"
    sqs = f"arn:aws:sqs:{here}:Q"
    assert resolved(statement, resources) == {
        "Resource": [sqs, f"arn:aws:sns:{here}:T", f"{sqs}/Q"],
        "Principal": {"Service": "logs.eu-west-1"},
    }
    document = {"Statement": [{"Resource": queue}]}
    role = {"AssumeRolePolicyDocument": document, "Policies": [{"PolicyDocument": document}]}
    resources["R"] = {"Type": "AWS::IAM::Role", "Properties": role}
    found = list(policies({"Resources": resources}))
    assert found == [("R", {"Statement": [{"Resource": sqs}]})]
