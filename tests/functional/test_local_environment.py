"""The embedded AWS's virtual environment is made once, and completely."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xorack.errors import LocalError
from xorack.local import environment


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("# nothing\n")
    return path


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "made" / "here"


@pytest.fixture
def broken(directory):
    """A directory as an interrupted installation leaves it."""
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "python").write_text("not a Python")
    return directory


@pytest.fixture
def installer(monkeypatch):
    """Stands for `venv` and `pip`: records the commands and makes a file for the Python."""
    commands = []

    def run(command):
        commands.append(command)
        if "venv" in command:
            python = Path(command[-1], "bin", "python")
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text("a Python")

    monkeypatch.setattr(environment, "_run", run)
    return commands


@pytest.mark.parametrize(
    "changed", ["requirements.txt", "made/here/bin/python", "made/here/made-of"]
)
def test_a_change_makes_it_again(directory, requirements, installer, tmp_path, changed):
    python = environment.ensure(directory, requirements)
    Path(f"{directory}.lock").unlink()
    assert environment.ensure(directory, requirements) == python
    assert not Path(f"{directory}.lock").exists()  # the folder may be read-only
    assert len(installer) == 2
    if changed == "requirements.txt":
        requirements.write_text("# still nothing\n")
    else:
        (tmp_path / changed).unlink()
    assert environment.ensure(directory, requirements) == python
    assert len(installer) == 4


def test_a_failed_installation_is_explained_in_one_line_and_repeated(
    broken, requirements, monkeypatch, tmp_path
):
    monkeypatch.setenv("PIP_PREFIX", "/nowhere")  # of the caller's own environment
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "ERROR: none [$PIP_PREFIX]"\necho more\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    for _ in range(2):
        with pytest.raises(LocalError, match=r"^`.* -m venv .*` failed: ERROR: none \[\]$"):
            environment.ensure(broken, requirements)


def test_without_a_checkout_it_lies_in_the_users_cache(tmp_path, monkeypatch, requirements):
    package = tmp_path / "site-packages" / "xorack" / "local"
    monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = environment.default_directory()
    assert re.fullmatch("ministack-[0-9a-f]{12}", folder.name)
    assert folder.parent == tmp_path / "cache" / "xorack"
    # Another version of xorack shares the cache, and must not replace the environment.
    monkeypatch.setattr(environment, "REQUIREMENTS", requirements)
    assert environment.default_directory() != folder
