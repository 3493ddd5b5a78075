"""The functions' code: the handlers and the library, and nothing that they do not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.synth import code_folder

from .templates import Template

ROOT = Path(__file__).resolve().parents[2]
# What is installed where the functions run: their own code, the runtime's boto3 and what it needs,
# and Powertools.
ON_LAMBDA = {
    "lambda_src",
    "xorack",
    "boto3",
    "botocore",
    "s3transfer",
    "jmespath",
    "dateutil",
    "six",
    "urllib3",
    "aws_lambda_powertools",
    "typing_extensions",
}
ELSEWHERE = ("cdk", "spark", "local", "cli", "demo")
HANDLERS = ("consumer", "sweeper", "widget")


@pytest.fixture(scope="module")
def asset(template: Template) -> Path:
    return code_folder(template.path)


def test_all_handlers_and_the_library_are_in_it(asset: Path) -> None:
    expected = {
        path.relative_to(ROOT)
        for folder in ("lambda_src", "xorack")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and not {"__pycache__"} & set(path.parts)
        and not (folder == "xorack" and path.relative_to(ROOT).parts[1].startswith(ELSEWHERE))
    }
    packed = {path.relative_to(asset) for path in asset.rglob("*") if path.is_file()}
    assert packed == expected
    assert {Path(f"lambda_src/{name}.py") for name in HANDLERS} <= packed


def test_nothing_else_is_in_it(asset: Path) -> None:
    assert {path.name for path in asset.iterdir()} == {"lambda_src", "xorack"}
    inside = {path.name for path in (asset / "xorack").iterdir()}
    assert not {name for name in inside if name.startswith((*ELSEWHERE, ".", "__pycache__"))}
    assert {path.suffix for path in asset.rglob("*") if path.is_file()} <= {".py", ".typed"}
    assert sum(path.stat().st_size for path in asset.rglob("*")) < 1_000_000


def test_all_functions_share_it_and_it_lies_beside_the_template(
    template: Template, asset: Path
) -> None:
    keys = {template.function(name)[1]["Code"]["S3Key"].removesuffix(".zip") for name in HANDLERS}
    assert keys == {asset.name.removeprefix("asset.")}
    assert asset.parent == template.path.parent


@pytest.mark.parametrize("handler", HANDLERS)
def test_handlers_import_from_it_alone(asset: Path, template: Template, handler: str) -> None:
    # As Lambda does: the asset's folder first, what the layer and the runtime have behind it,
    # nothing of the checkout's and of what else is installed here.
    module, _, name = template.function(handler)[1]["Handler"].rpartition(".")
    code = f"""
import importlib, sys
asset = {str(asset)!r}
sys.path[:] = [asset, *(path for path in sys.path if path not in ("", {str(ROOT)!r}))]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
class Lambda:
    # What the runtime and the layer do not have is not there.
    has = {sorted(ON_LAMBDA)!r}
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in self.has and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError("not on Lambda: " + name, name=name)
sys.meta_path.insert(0, Lambda())
handlers = importlib.import_module({module!r})
import xorack
assert callable(handlers.{name})
assert handlers.__file__.startswith(asset) and xorack.__file__.startswith(asset)
"""
    # No setting of the environment may be needed to import it.
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("AWS_", "POWERTOOLS_", "PYTHONPATH"))
    }
    ran = subprocess.run(
        [sys.executable, "-B", "-c", code],
        capture_output=True,
        text=True,
        cwd=asset.parent,
        env={**environment, "AWS_DEFAULT_REGION": "eu-west-1"},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_the_same_code_is_the_same_asset(
    template: Template, synthesise: Callable[..., Template]
) -> None:
    # A second synthesis, in another folder: nothing of time or place gets into the hash.
    other = synthesise(log_level="DEBUG")
    assert other.path.parent != template.path.parent
    assert code_folder(other.path).name == code_folder(template.path).name


def test_no_bundling_and_no_image(template: Template) -> None:
    manifest = json.loads((template.path.parent / "xorack.assets.json").read_text())
    assert manifest.get("dockerImages", {}) == {}
    assert all("executable" not in file["source"] for file in manifest["files"].values())
