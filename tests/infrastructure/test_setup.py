"""Set-up: environments are complete and up to date, and make passes its arguments on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.synth import ROOT
from tools import venv

from .templates import run

MAKE = shutil.which("make") or "make"


FAILING = [sys.executable, "-c", "raise SystemExit(1)"]
"""A command that fails; a PATH may not have `false`."""


def fail(*_):
    subprocess.check_call(FAILING)


class Checkout:
    """A checkout whose uv makes empty environments, and keeps what it was asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.commands: list[str] = []
        self.arguments: tuple[str | Path, ...] = ()
        for name in SOURCES:
            (root / name).touch()
        text = f"# a\npackage==1; python_version > '3'\n\n{venv.FOR_TESTS}\npytest==1\n"
        (root / "requirements.txt").write_text(text)

    def uv(self, *arguments: str | Path) -> None:
        self.commands.append(str(arguments[0]))
        if "--require-hashes" in arguments:
            self.arguments = arguments
        if arguments[0] == "venv":
            shutil.rmtree(self.venv, ignore_errors=True)
            (self.venv / "bin").mkdir(parents=True)
            (self.venv / "bin" / "python").symlink_to(sys.executable)

    def set_up(self, name: str, same_python: bool = False) -> list[str]:
        """Make or update an environment; return the commands of it."""
        self.commands.clear()
        assert venv.environment(name, same_python) == self.venv / "bin"
        return list(self.commands)


SOURCES = ("requirements.txt", "requirements.lock", "pyproject.toml")
UPDATE = ["pip", "pip"]
NEW = ["venv", *UPDATE]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    checkout = Checkout(tmp_path)
    monkeypatch.setattr(venv, "ROOT", tmp_path)
    monkeypatch.setattr(venv, "uv", checkout.uv)
    return checkout


def test_an_environment_is_updated_if_it_is_outdated_or_has_too_little(checkout):
    assert checkout.set_up("demo") == NEW
    assert "dev" not in checkout.arguments
    assert {"package==1; python_version > '3'", "--require-hashes"} <= {*checkout.arguments}
    assert not {"pytest==1", "requirements.txt"} & {*checkout.arguments}
    for source in SOURCES:
        with (checkout.root / source).open("a") as file:
            file.write("# another\n")
        assert [checkout.set_up("demo") for _ in range(2)] == [UPDATE, []]
    assert checkout.set_up("dev") == UPDATE
    assert {"--require-hashes", "--group", "dev", "requirements.txt"} <= {*checkout.arguments}
    # There is more than the demo needs.
    assert [checkout.set_up(name, same_python=True) for name in ("dev", "demo")] == [[], []]
    (python := checkout.venv / "bin" / "python").unlink()
    script(python, "exit 1\n")
    assert [checkout.set_up("demo", same_python=same) for same in (False, True)] == [[], NEW]
    python.unlink()
    assert checkout.set_up("demo") == NEW


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Without the variables of a make that runs this test.
    dropped = ("MAKE", "MFLAGS", "PYTHON", "DIR", "LOSE", "ARGS")
    kept = {name: held for name, held in os.environ.items() if not name.startswith(dropped)}
    command = (MAKE, "-C", str(ROOT), "--no-print-directory", *arguments)
    return run(*command, **{**kept, **environment})


def made(*arguments: str, **environment: str) -> str:
    """Run make, which succeeds; return its output."""
    ran = make(*arguments, **environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


OLD = 'case "$1" in --version) echo Python 3.8.10;; *) exit 1;; esac\n'


@pytest.mark.parametrize("target", ["venv", "lock", "audit", "test-spark35"])
def test_an_unsuitable_python_is_named(tmp_path, target):
    """These targets run PYTHON itself."""
    old = script(tmp_path / "python3", OLD)
    broken = script(tmp_path / "broken", "exit 127\n")
    for python, problem in (
        (old, f"{old} is not Python 3.10 or later (Python 3.8.10): name one"),
        (broken, f"{broken} is not Python 3.10 or later (it does not run)"),
        ("/no/python3", "there is no /no/python3: install Python 3.10 or later"),
        (None, "python3 is not Python 3.10 or later (Python 3.8.10): name one"),
    ):
        named, path = ([f"PYTHON={python}"], {}) if python else ([], {"PATH": str(tmp_path)})
        ran = make(target, *named, **path)
        assert ran.returncode != 0
        assert f"error: {problem}" in ran.stderr


def test_make_passes_arguments_on(tmp_path):
    # In place of both Pythons: `.venv` itself is left alone.
    log = tmp_path / "log"
    python = script(tmp_path / "python", f'for a in "$@"; do echo "$a" >> {log}; done\n')
    unused = script(tmp_path / "unused", "")
    special = "a b'$HOME`c`"
    escaped = special.replace("$", "$$")
    for target, arguments, expected in (
        ("demo", (), []),
        ("demo", (f"DIR={escaped}", "LOSE=3"), ["--dir", special, "--lose", "3"]),
        ("demo", ("ARGS=--verbose",), ["--verbose"]),
        ("deployed", (), []),
        ("deployed", (f"STACK={escaped}", "ARGS=--yes"), ["--stack", special, "--yes"]),
    ):
        log.unlink(missing_ok=True)
        fakes = (f"PY={python}", f"PYTHON={unused}")
        others = {"DIR": "/not/from/the/environment", "STACK": "nor-this"}
        made(target, *fakes, *arguments, **others)
        module = {"deployed": "tools.deployed"}.get(target, target)
        assert log.read_text().splitlines() == ["-m", module, *expected]
