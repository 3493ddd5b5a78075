"""The functions' code: handlers, the parts of the library that they use, and locked packages."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.synth import ROOT
from xorack.cdk import code

from .templates import FUNCTIONS, python
from .test_lock import MAIN, PROJECT, PYTHONS, locked
from .test_setup import script

PACKAGES = ["aws_lambda_powertools", "jmespath", "typing_extensions"]
RUNTIME = ["boto3", "botocore", "s3transfer", "dateutil", "six", "urllib3"]

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
tops = ("lambda_src", "xorack", "aws_lambda_powertools", "jmespath", "typing_extensions")
files = {name: sys.modules[name].__file__ for name in sys.modules if name.partition(".")[0] in tops}
assert all(file.startswith(asset) for file in files.values()), files
print(*files)
"""


@pytest.fixture(scope="module")
def asset(template):
    return template.code_folder


def test_it_has_the_handlers_and_what_they_import(asset):
    files = {path.relative_to(asset) for path in asset.rglob("*") if path.is_file()}
    packed = {path for path in files if path.suffix != ".pyc"}  # a Python of Lambda's adds bytecode
    ours = {path for path in packed if path.parts[0] in ("lambda_src", "xorack")}
    assert {Path(f"lambda_src/{name}.py") for name in FUNCTIONS} <= packed
    for path in ours:
        assert (asset / path).read_bytes() == (ROOT / path).read_bytes()
    others = {re.sub(r"-[0-9.]+dist-info$|\.py$", "", path.parts[0]) for path in packed - ours}
    assert sorted(others) == PACKAGES
    # Modules, and the packages' METADATA and LICENSE: nothing compiled for one architecture.
    assert {path.suffix for path in packed} == {".py", ".typed", ""}
    # Docstrings and comments are about a quarter of it.
    assert sum((asset / path).stat().st_size for path in ours) < 350_000
    assert sum((asset / path).stat().st_size for path in packed) < 2_200_000


def test_bytecode_is_made_by_any_python_of_the_version_that_runs(monkeypatch, tmp_path):
    """A stub of the name does not count, as pyenv has it for versions that are not active."""
    assert code.find_python(sys.version_info[:2]) == sys.executable
    folders = [tmp_path / name for name in ("empty", "stub", "other", "right")]
    answers = {"stub": "exit 127", "other": "echo 3 12", "right": "echo 3 99"}
    for folder in folders:
        folder.mkdir()
        if text := answers.get(folder.name):
            script(folder / "python3.99", f"{text}\n")
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    assert code.find_python((3, 99)) == str(tmp_path / "right" / "python3.99")
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders[:-1])))
    assert code.find_python((3, 99)) is None


@pytest.mark.slow
def test_the_python_of_lambda_adds_bytecode_that_it_does_not_check(monkeypatch, tmp_path):
    monkeypatch.setattr(code, "find_python", lambda version: sys.executable)
    monkeypatch.setattr(code, "LAMBDA_PYTHON", sys.version_info[:2])
    made = [shutil.copytree(code.assemble_code.__wrapped__(), tmp_path / name) for name in "ab"]
    compiled = [{p.relative_to(one): p.read_bytes() for p in one.rglob("*.pyc")} for one in made]
    assert compiled[0] == compiled[1]  # the asset's hash stays the same
    sources = {Path(importlib.util.cache_from_source(p)) for p in made[0].rglob("*.py")}
    assert {made[0] / path for path in compiled[0]} == sources
    flags = {content[4:8] for content in compiled[0].values()}
    assert flags == {b"\x01\0\0\0"}  # a hash, which is not checked
    assert not any(str(made[0].parent).encode() in one for one in compiled[0].values())
    # In a wheel that Lambda's Python built, pip adds bytecode of the user's.
    shipped = shutil.copytree(made[0], tmp_path / "wheel" / "asset.1")
    (shipped / "xorack" / "__pycache__" / "errors.cpython-39.pyc").touch()
    monkeypatch.setattr(code, "_IN_WHEEL", shipped.parent)
    monkeypatch.setattr(code, "_compile", lambda folder: None)
    unpacked = code.assemble_code.__wrapped__()
    assert {p.relative_to(unpacked) for p in unpacked.rglob("*.pyc")} == {*compiled[0]}


def test_two_syntheses_are_equal_and_anybody_can_read_the_code(template, tmp_path):
    """Lambda's user is another: with a strict umask, the functions could not be imported."""
    command = [sys.executable, "-m", "infra.synth", "--out", tmp_path]
    subprocess.run(command, cwd=ROOT, umask=0o077, check=True)
    strict, usual = (
        {path.relative_to(folder): path for path in folder.rglob("*")}
        for folder in (tmp_path, template.path.parent)
    )
    assert strict.keys() == usual.keys()
    for path, file in strict.items():
        if file.is_file():
            assert file.read_bytes() == usual[path].read_bytes(), path
            if path.parts[0].startswith("asset."):
                assert file.stat().st_mode & 0o777 == 0o644, path


def test_a_change_outside_of_the_closure_is_no_new_code(tmp_path):
    for top in ("lambda_src", "xorack"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))

    def code_now():
        return {path: path.read_bytes() for path in code.handlers_closure(tmp_path)}

    before = code_now()
    others = {path for path in tmp_path.rglob("*") if path.is_file()} - before.keys()
    assert len(others) > len(before)
    for path in others:
        path.write_bytes(path.read_bytes() + b"\n# changed\n")
    (tmp_path / "xorack/core/unused.py").write_text("import xorack.acker.consumer\n")
    assert code_now() == before
    handler = tmp_path / "lambda_src/sweeper.py"
    handler.write_text(f"{handler.read_text()}\ndef later():\n    import xorack.core.unused\n")
    assert code_now().keys() - before.keys() == {tmp_path / "xorack/core/unused.py"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_handlers_import_from_it_alone(asset, template, function):
    module, _, name = template.function(function)[1]["Handler"].rpartition(".")
    # The import needs no variable of the environment but the region.
    arguments = (IMPORT, str(asset), str(ROOT), module, name, "lambda_src", "xorack")
    imported = python(
        *arguments, *PACKAGES, *RUNTIME, cwd=asset.parent, AWS_DEFAULT_REGION="eu-west-1"
    ).split()
    assert "aws_lambda_powertools" in imported


def test_the_packages_are_those_of_the_lock_file_and_the_extras_pin_none():
    pinned = dict(release.replace("_", "-").split("==") for release in code._PACKAGES)
    for version in PYTHONS:
        versions = locked(version, MAIN)
        assert {name: versions[name] for name in pinned} == pinned
    # The user's app may need other releases of what the wheel has ready for Lambda.
    extras = PROJECT["project"]["optional-dependencies"]
    assert not [one for name in ("cdk", "lambda") for one in extras[name] if "==" in one]
    assert not [one for one in extras["cdk"] if "powertools" in one or "[" in one]
