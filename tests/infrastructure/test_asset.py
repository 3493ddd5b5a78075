"""The functions' code: the handlers, and the parts of the library that they use."""

import json
from pathlib import Path

import pytest

from infra.synth import ROOT

from .templates import FUNCTIONS, python

# The packages on Lambda: the functions' own code, the runtime's boto3, Powertools.
ON_LAMBDA = {
    "lambda_src", "xorack", "boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six",
    "urllib3", "aws_lambda_powertools", "typing_extensions",
}  # fmt: skip
ELSEWHERE = {"cdk", "spark", "local", "cli", "client"}

# The asset is the first folder on the path; the checkout and other packages are hidden.
IMPORT = """
import importlib, sys
asset, root, module, name, *on_lambda = sys.argv[1:]
sys.path[:] = [asset, *(path for path in sys.path if path not in ("", root))]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
class Lambda:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in on_lambda and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError("not on Lambda: " + name, name=name)
sys.meta_path.insert(0, Lambda())
handlers = importlib.import_module(module)
import xorack
assert callable(getattr(handlers, name))
assert handlers.__file__.startswith(asset) and xorack.__file__.startswith(asset)
"""


@pytest.fixture(scope="module")
def asset(template):
    return template.code_folder


def test_it_has_the_handlers_and_the_library_and_nothing_else(asset):
    expected = {
        path.relative_to(ROOT)
        for folder in ("lambda_src", "xorack")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.relative_to(ROOT).parts[1] not in ELSEWHERE
    }
    packed = {path.relative_to(asset) for path in asset.rglob("*") if path.is_file()}
    assert packed == expected
    assert {Path(f"lambda_src/{name}.py") for name in FUNCTIONS} <= packed
    assert {path.suffix for path in packed} <= {".py", ".typed"}
    assert sum((asset / path).stat().st_size for path in packed) < 1_000_000


def test_all_functions_share_it_and_it_lies_beside_the_template(template, asset):
    keys = {template.function(name)[1]["Code"]["S3Key"].removesuffix(".zip") for name in FUNCTIONS}
    assert keys == {asset.name.removeprefix("asset.")}
    assert asset.parent == template.path.parent


@pytest.mark.parametrize("function", FUNCTIONS)
def test_handlers_import_from_it_alone(asset, template, function):
    module, _, name = template.function(function)[1]["Handler"].rpartition(".")
    # The import needs no variable of the environment but the region.
    arguments = (IMPORT, str(asset), str(ROOT), module, name, *ON_LAMBDA)
    python(*arguments, cwd=asset.parent, AWS_DEFAULT_REGION="eu-west-1")


def test_the_same_code_is_the_same_asset(template, varied):
    # The hash depends on neither the time nor the folder.
    assert varied.path.parent != template.path.parent
    assert varied.code_folder.name == template.code_folder.name


def test_there_is_no_bundling_and_no_image(template):
    manifest = json.loads((template.path.parent / "xorack.assets.json").read_text())
    assert manifest.get("dockerImages", {}) == {}
    assert all("executable" not in file["source"] for file in manifest["files"].values())
