"""What is pinned can be installed with each Python that the project says it runs on."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tools import dependencies, spark35
from tools.venv import OLDEST

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], 15)]


def requirements() -> list[Requirement]:
    lines = [
        line
        for name in ("requirements.txt", "requirements-dev.txt", "xorack/local/requirements.txt")
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    ]
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]


def chosen(python: str, of: list[Requirement]) -> list[Requirement]:
    """What pip would take with a Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    return [wanted for wanted in of if wanted.marker is None or wanted.marker.evaluate(environment)]


def refused(python: str, of: list[Requirement]) -> list[str]:
    """What of it a Python cannot have, as far as what is installed here says."""
    taken = chosen(python, of)
    assert {wanted.name for wanted in taken} == {wanted.name for wanted in of}
    found = []
    for wanted in taken:
        try:
            here = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError:  # what is in an environment of its own
            continue
        needs = SpecifierSet(here.metadata.get("Requires-Python") or "")
        if wanted.specifier.contains(here.version) and not needs.contains(f"{python}.0"):
            found.append(f"{wanted}: Python {needs}")
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_gets_each_package_in_a_version_that_it_can_have(python: str) -> None:
    assert refused(python, requirements()) == []


@pytest.mark.parametrize("needs", [spark35.NEEDS, dependencies.NEEDS])
def test_so_does_an_environment_of_its_own(needs: tuple[str, ...]) -> None:
    for python in PYTHONS:
        assert refused(python, [Requirement(line) for line in needs]) == []


@pytest.mark.parametrize("python", [(3, 10, 13), (3, 11, 7)])
def test_spark_3_5_runs_on_these(python: tuple[int, ...]) -> None:
    assert spark35.unfit(python) is None


@pytest.mark.parametrize("python", [(3, 12, 1), (3, 13, 0)])
def test_spark_3_5_does_not_run_on_these_and_says_so(python: tuple[int, ...]) -> None:
    told = spark35.unfit(python)
    assert told is not None
    assert f"Python 3.10 or 3.11, not 3.{python[1]}: make test-spark35 PYTHON=" in told


def test_the_package_itself_says_the_same_oldest_python() -> None:
    assert SpecifierSet(metadata.metadata("xorack")["Requires-Python"]) == SpecifierSet(
        f">={'.'.join(map(str, OLDEST))}"
    )
