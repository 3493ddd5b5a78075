"""The lock files fit the requirements on every supported Python, and hold on every machine."""

import re
import sys

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.venv import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["dependency-groups"]
LINES = (ROOT / "requirements.txt").read_text().splitlines()
TOP = [line for line in LINES if line and line[0] != "#"]
MAIN = "requirements.lock"
LOCKS = {
    MAIN: [*TOP, *GROUPS["uv"], *GROUPS["dev"], *GROUPS["docs"]],
    "tools/policy-lint.lock": GROUPS["policy-lint"],
    "tools/spark35.lock": GROUPS["spark35"],
    "xorack/local/requirements.lock": GROUPS["embedded"],
}
"""Lock file -> what it is made of."""
PYTHONS = [f"3.{minor}" for minor in range(10, 15)]


def chosen(python: str, requirements: list[Requirement]) -> list[Requirement]:
    """The requirements whose markers hold for a Python on this platform."""
    versions = {"python_version": python, "python_full_version": f"{python}.1"}
    environment = {**default_environment(), **versions}
    return [one for one in requirements if one.marker is None or one.marker.evaluate(environment)]


def entries(lock: str) -> list[tuple[Requirement, list[str]]]:
    """A lock's requirements and their hashes."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    parts = [re.split(r"\s+--hash=", line.strip()) for line in joined]
    return [(Requirement(required), hashes) for required, *hashes in parts]


def locked(python: str, lock: str) -> dict[str, str]:
    """Name -> the one version that a Python is given."""
    versions: dict[str, str] = {}
    for wanted in chosen(python, [entry for entry, _ in entries(lock)]):
        (pin,) = wanted.specifier
        name = canonicalize_name(wanted.name)
        assert pin.operator == "==", wanted
        assert name not in versions, wanted
        versions[name] = pin.version
    return versions


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_one_fitting_version_of_each_requirement(python, lock):
    versions = locked(python, lock)
    requirements = [Requirement(line) for line in LOCKS[lock]]
    wanted = chosen(python, requirements)
    assert {one.name for one in wanted} == {one.name for one in requirements}
    for one in wanted:
        assert one.specifier.contains(versions[canonicalize_name(one.name)]), f"{one}: make lock"


def test_pip_installs_what_unit_tests_need():
    """`pip install -r requirements.txt` and `pytest tests/unit` work without make."""
    asked = {"aws-cdk-lib", "constructs", "boto3", "aws-lambda-powertools", "pytest", "moto"}
    assert asked <= {Requirement(line).name for line in TOP}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_of_all_files_and_names_no_registry(lock):
    for wanted, hashes in entries(lock):
        assert wanted.url is None
        assert hashes, wanted
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), wanted
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|^\s*/", text, re.MULTILINE)
