"""What is pinned can be installed with each Python that the project says it runs on."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

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


def chosen(python: str) -> list[Requirement]:
    """What pip would take with a Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    return [
        wanted
        for wanted in requirements()
        if wanted.marker is None or wanted.marker.evaluate(environment)
    ]


@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_gets_each_package_in_a_version_that_it_can_have(python: str) -> None:
    taken = chosen(python)
    assert {wanted.name for wanted in taken} == {wanted.name for wanted in requirements()}
    refused = []
    for wanted in taken:
        try:
            here = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError:  # the embedded AWS has an environment of its own
            continue
        needs = SpecifierSet(here.metadata.get("Requires-Python") or "")
        if wanted.specifier.contains(here.version) and not needs.contains(f"{python}.0"):
            refused.append(f"{wanted}: Python {needs}")
    assert refused == []


def test_the_package_itself_says_the_same_oldest_python() -> None:
    assert SpecifierSet(metadata.metadata("xorack")["Requires-Python"]) == SpecifierSet(
        f">={'.'.join(map(str, OLDEST))}"
    )
