"""The template for CloudFormation alone: what the CDK deploys, with parameters."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import aws_cdk
import pytest

from infra.synth import ROOT, main
from infra.template import PARAMETERS, write

from .templates import STATEFUL, Template, run

TOPIC = "arn:aws:sns:eu-west-1:123456789012:alarms"
VALUES = {
    "AlarmTopicArn": TOPIC,
    "BatchSize": 250,
    "MaxConcurrency": 9,
    "MemoryMb": 2048,
    "DefaultTimeoutSeconds": 60,
    "RetentionSeconds": 40 * 86_400,
    "FailedChainsThreshold": 25,
    "LogRetentionDays": 90,
    "AWS::StackName": "xorack",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The template and the path of the zip."""
    template, packed = write(tmp_path_factory.mktemp("template") / "new", {})
    return json.loads(template.read_text()), packed


def resolved(value, values):
    """A part of a template with the values of parameters, and joined texts as one."""
    match value:
        case {"Fn::If": [_, part, _]}:
            return resolved(part, values)
        case {"Ref": name} if name in values:
            return str(values[name])
        case {"Fn::Join": [separator, parts]}:
            return separator.join(
                part if isinstance(part, str) else json.dumps(part, sort_keys=True)
                for part in (resolved(part, values) for part in parts)
            )
        case dict():
            return {name: resolved(part, values) for name, part in value.items()}
        case list():
            return [resolved(part, values) for part in value]
    return value if isinstance(value, bool) else str(value)


def test_with_parameters_it_is_what_the_settings_make(made, synthesise):
    template, _ = made
    settings = {setting: f"{VALUES[name]}" for name, (setting, _) in PARAMETERS.items()}
    settings["retention_days"] = "40"
    expected = synthesise(alarm_topic_arn=TOPIC, **settings)
    theirs, ours = (resolved(body, VALUES) for body in (expected.body, template))
    versions = [name for name in theirs["Resources"] if name not in ours["Resources"]]
    assert {theirs["Resources"].pop(name)["Type"] for name in versions} == {"AWS::Lambda::Version"}
    assert len(versions) == 2
    for body in (theirs, ours):
        for resource in body["Resources"].values():
            resource.pop("Metadata", None)
            resource.pop("DependsOn", None)
            changed = {"AWS::Lambda::Function": "Code", "AWS::Lambda::Alias": "FunctionVersion"}
            resource["Properties"].pop(changed.get(resource["Type"]), None)
    assert ours["Resources"] == theirs["Resources"]
    assert ours["Outputs"] == theirs["Outputs"]


def test_it_needs_neither_the_cdk_nor_another_file(made, template):
    body, packed = made
    text = json.dumps(body, separators=(",", ":"))
    assert len(text) <= 51_200  # more needs a bucket for the template
    # The CDK begins the ids of a bus's statements with its name.
    assert not re.search("cdk(?!-?OnlyTheAcker)|bootstrap", text, re.IGNORECASE)
    assert body["Parameters"]["CodeKey"]["Default"] == packed.name
    assert [name for name, one in body["Parameters"].items() if "Default" not in one] == [
        "CodeBucket"
    ]
    # The same stack may go on under the CDK, and keeps its state.
    for kind in STATEFUL:
        held = {name for name, one in body["Resources"].items() if one["Type"] == kind}
        assert held == set(template.of(kind))
    with zipfile.ZipFile(packed) as archive:
        packed_files = {path: archive.read(path) for path in archive.namelist()}
        assert {one.external_attr >> 16 for one in archive.infolist()} == {0o644}
    folder = template.code_folder
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert packed_files == {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_cfn_lint_finds_no_error_and_nothing_to_warn_of(made, tmp_path):
    path = tmp_path / "xorack.template.json"
    path.write_text(json.dumps(made[0]))
    lint = Path(sys.executable).with_name("cfn-lint")
    command = [lint, "--template", path, "--regions", "eu-west-1", "us-gov-west-1", "cn-north-1"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


@pytest.mark.parametrize("setting", ["stack_name=other", f"alarm_topic_arn={TOPIC}"])
def test_what_the_deployment_decides_is_no_setting(setting, tmp_path, capsys):
    assert main(["--out", str(tmp_path), "-c", setting], make=write) == 2
    name = setting.partition("=")[0]
    assert re.match(f"error: setting {name}: .* the deployment decides", capsys.readouterr().err)


def test_typescript_includes_it_as_the_page_shows(made, tmp_path):
    """The packages are those that jsii has: what npm would install, with the CDK for TypeScript."""
    site = Path(aws_cdk.__file__).parents[1]
    for path in site.glob("**/_jsii/*.jsii.tgz"):
        with tarfile.open(path) as archive:
            package = json.load(archive.extractfile("package/package.json"))["name"]
            if package in ("aws-cdk-lib", "constructs", "@aws-cdk/cloud-assembly-schema"):
                archive.extractall(tmp_path / "unpacked" / package)
                target = tmp_path / "node_modules" / package
                target.parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "unpacked" / package / "package").rename(target)
    shutil.copytree(made[1].parent, tmp_path / "xorack")
    page = (ROOT / "docs" / "own-stack.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```typescript\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "app.mts").write_text(source)  # node runs TypeScript, and does not check types
    node = os.environ["JSII_NODE"]
    environment = {"CDK_OUTDIR": "out", "CDK_VALIDATION": "false", "NODE_NO_WARNINGS": "1"}
    app = run(node, "app.mts", cwd=tmp_path, **environment)
    assert (app.stdout, app.stderr, app.returncode) == ("", "", 0)
    template = Template.read(tmp_path / "out" / "orders.template.json")
    ours = {**made[0]["Resources"]}
    assert {name: one["Type"] for name, one in ours.items()}.items() <= {
        name: one["Type"] for name, one in template.resources.items()
    }.items()
    asset = template.path.with_name("orders.assets.json").read_text()
    for name in ("consumer", "sweeper"):
        assert template.function(name)[1]["Code"]["S3Key"] in asset
    assert {"sqs:SendMessage"} <= template.granted("Loader046D4679")[template.queue()[0]]
