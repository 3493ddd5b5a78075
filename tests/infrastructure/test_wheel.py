"""The construct as others get it: from a wheel, without the checkout, in the example's stack."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from infra.synth import code_folder

from .templates import Template, target
from .test_compliance import lint
from .test_functions import allowed

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own_stack"
PACKED = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "xorack",
          "lambda_src")  # fmt: skip

BUILD = """
import os, shutil, sys
from setuptools import build_meta
target = sys.argv[1]  # which setuptools replaces
packed = os.path.join(target, build_meta.build_sdist(target))
shutil.unpack_archive(packed, target)
os.chdir(packed.removesuffix(".tar.gz"))
print(os.path.join(target, build_meta.build_wheel(target)))
"""
RUN = """
import runpy, sys
runpy.run_path("app.py", run_name="__main__")
import xorack
print(xorack.__file__)
"""


def run(code: str, *arguments: str, cwd: Path, **environment: str) -> str:
    kept = {name: held for name, held in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of the source distribution, which is built of what is here."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in PACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    return Path(run(BUILD, str(target), cwd=source))


@pytest.fixture(scope="module")
def example(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The example, synthesised with what is in the wheel."""
    site, out = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("cdk")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    context = json.loads((EXAMPLE / "cdk.json").read_text())["context"]
    used = run(
        RUN,
        cwd=EXAMPLE,
        PYTHONPATH=str(site),
        CDK_OUTDIR=str(out),
        CDK_CONTEXT_JSON=json.dumps(context),
    )
    assert Path(used).is_relative_to(site)
    path = out / "warehouse.template.json"
    return Template(path, json.loads(path.read_text()))


def test_the_wheel_has_the_handlers_and_no_package_beside_its_own(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"xorack"}
    for path in (ROOT / "lambda_src").glob("*.py"):
        assert f"xorack/cdk/lambda_src/{path.name}" in names


def test_the_functions_code_is_the_checkouts_to_the_byte(
    example: Template, template: Template
) -> None:
    assert code_folder(example.path).name == code_folder(template.path).name
    _, function = example.function("consumer")
    assert function["Handler"] == template.function("consumer")[1]["Handler"]


def test_nothing_of_the_users_machine_is_in_the_template(example: Template) -> None:
    text = json.dumps(example.body)
    assert str(ROOT) not in text
    assert str(example.path.parent) not in text
    assert "xorack-code-" not in text


def test_cfn_lint_is_content(example: Template) -> None:
    said = lint(example.path)
    assert (said.returncode, said.stdout) == (0, ""), said.stdout + said.stderr


def test_what_was_brought_is_used(example: Template) -> None:
    key, _ = example.one("AWS::KMS::Key")
    bus, _ = example.bus()
    topic, _ = example.one("AWS::SNS::Topic")
    assert example.table()[1]["SSESpecification"] == {
        "KMSMasterKeyId": {"Fn::GetAtt": [key, "Arn"]},
        "SSEEnabled": True,
        "SSEType": "KMS",
    }
    for queue in (example.queue(), example.dead_letters()):
        assert target(queue[1]["KmsMasterKeyId"]) == key
    for name in ("consumer", "sweeper"):
        assert (
            target(example.function(name)[1]["Environment"]["Variables"]["EVENT_BUS_NAME"]) == bus
        )
    alarms = example.of("AWS::CloudWatch::Alarm").values()
    assert alarms
    assert {tuple(map(target, alarm["Properties"]["AlarmActions"])) for alarm in alarms} == {
        (topic,)
    }


def test_the_functions_logs_are_encrypted_with_the_key_that_lets_them(example: Template) -> None:
    key, properties = example.one("AWS::KMS::Key")
    for name in ("consumer", "sweeper", "widget"):
        logs = target(example.function(name)[1]["LoggingConfig"]["LogGroup"])
        assert target(example.resources[logs]["Properties"]["KmsKeyId"]) == key
    (statement,) = [
        statement
        for statement in properties["KeyPolicy"]["Statement"]
        if "logs." in json.dumps(statement["Principal"])
    ]
    region, account = {"Ref": "AWS::Region"}, {"Ref": "AWS::AccountId"}
    assert statement["Principal"] == {
        "Service": {"Fn::Join": ["", ["logs.", region, ".", {"Ref": "AWS::URLSuffix"}]]}
    }
    arn = ["arn:", {"Ref": "AWS::Partition"}, ":logs:", region, ":", account, ":log-group:*"]
    # Nobody's but this account's log groups: the service acts for all accounts.
    assert statement["Condition"] == {
        "ArnLike": {"kms:EncryptionContext:aws:logs:arn": {"Fn::Join": ["", arn]}}
    }


def test_each_function_may_use_the_key_for_what_it_does(example: Template) -> None:
    key, _ = example.one("AWS::KMS::Key")
    write = {"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey",
             "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom",
             "kms:ReEncryptTo"}  # fmt: skip
    assert {name: allowed(example, name)[key] for name in ("consumer", "sweeper", "widget")} == {
        "consumer": write,
        "sweeper": write,
        "widget": {"kms:Decrypt", "kms:DescribeKey"},
    }


def test_the_functions_are_in_the_network_which_leads_to_what_they_call(example: Template) -> None:
    subnets = set(example.of("AWS::EC2::Subnet"))
    for function in example.of("AWS::Lambda::Function").values():
        network = function["Properties"]["VpcConfig"]
        assert {target(subnet) for subnet in network["SubnetIds"]} == subnets
    named = [
        json.dumps(endpoint["Properties"]["ServiceName"])
        for endpoint in example.of("AWS::EC2::VPCEndpoint").values()
    ]
    for service in ("dynamodb", "sqs", "events"):
        assert any(f".{service}" in name for name in named), service
    rights = allowed(example, "widget")["*"]
    assert {"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"} <= rights
    assert all(right.startswith(("ec2:", "xray:")) for right in rights)


def granted(example: Template, role: str) -> dict[str, set[str]]:
    """What a role of the example's own may do: actions by resource."""
    found: dict[str, set[str]] = {}
    for policy in example.of("AWS::IAM::Policy").values():
        if {"Ref": role} not in policy["Properties"]["Roles"]:
            continue
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            for resource in as_list(statement["Resource"]):
                found.setdefault(target(resource), set()).update(as_list(statement["Action"]))
    return found


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_grants_come_with_the_key(example: Template) -> None:
    key, _ = example.one("AWS::KMS::Key")
    table, _ = example.table()
    roles = {name[:-8]: name for name in example.of("AWS::IAM::Role")}
    assert granted(example, roles["Loader"]) == {
        example.queue()[0]: {"sqs:SendMessage"},
        key: {"kms:Decrypt", "kms:GenerateDataKey"},
    }
    reads = {"dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem",
             "dynamodb:Query", "dynamodb:Scan"}  # fmt: skip
    assert granted(example, roles["Support"]) == {
        table: reads,
        f"{table}/index/due": reads,
        key: {"kms:Decrypt", "kms:DescribeKey"},
    }


def test_subscribers_listen_on_the_bus_that_was_brought(example: Template) -> None:
    bus, _ = example.bus()
    heard = {
        tuple(rule["Properties"]["EventPattern"]["detail-type"])
        for rule in example.of("AWS::Events::Rule").values()
        if target(rule["Properties"].get("EventBusName", "")) == bus
    }
    assert heard == {("acked",), ("failed",)}


def test_its_metrics_are_its_own(example: Template) -> None:
    variables = example.function("consumer")[1]["Environment"]["Variables"]
    assert variables["POWERTOOLS_SERVICE_NAME"] == "warehouse-Acker"
    dimensions = {
        dimension["Value"]
        for alarm in example.of("AWS::CloudWatch::Alarm").values()
        for dimension in alarm["Properties"]["Dimensions"]
        if dimension["Name"] == "service"
    }
    assert dimensions == {"warehouse-Acker"}


def test_without_the_cdk_it_says_what_to_install() -> None:
    code = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("aws_cdk", "constructs"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
import xorack.cdk
assert xorack.cdk.Settings().batch_size == 1000
try:
    xorack.cdk.Acker
except ModuleNotFoundError as error:
    print(error)
"""
    said = run(code, cwd=ROOT)
    assert said == "xorack.cdk needs aws-cdk-lib: pip install 'xorack[cdk]'"
