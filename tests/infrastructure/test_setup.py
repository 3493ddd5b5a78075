"""Set-up: the virtual environment is kept up to date, and make passes its arguments on."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from venv import EnvBuilder

import pytest

from infra.synth import ROOT
from tools import venv
from tools.venv import Environment, SetupError, set_up

from .templates import run

MAKE = shutil.which("make") or "make"


class FakeEnvironment(Environment):
    """An environment without packages that records the installers' commands, or fails."""

    def __init__(self, root: Path, lock: str = venv.DEV_LOCK) -> None:
        super().__init__(root, lock)
        self.commands: list[str] = []
        self.settings: dict[str, str] = {}
        self.failure: BaseException | None = None

    def create(self) -> None:
        EnvBuilder(clear=True, symlinks=True).create(self.path)
        (package,) = self.path.glob("lib/python3*/site-packages")
        listed = "global.index-url='https://mirror.test/simple'"
        (package / "pip.py").write_text(f"if __name__ == '__main__': print({listed!r})\n")

    @contextmanager
    def embedded_aws(self) -> Iterator[None]:
        self.commands.append("embedded AWS")
        yield
        self.commands.append("embedded AWS made")

    def run(self, *command: str, **settings: str) -> None:
        if self.failure:
            raise self.failure
        self.commands.append(" ".join(command).replace(f"{self.path / 'bin'}{os.sep}", ""))
        self.settings = settings


@pytest.fixture
def project(tmp_path: Path) -> FakeEnvironment:
    for name in (*venv.REQUIREMENTS, *venv.SOURCES):
        (tmp_path / name).write_text(f"# {name}\n")
    lock = f"# Made of: {venv.requirements_hash(tmp_path)}\na==1\nuv==2 \\\n    --hash=h\nxx==3\n"
    for name in (venv.LOCK, venv.DEV_LOCK):
        (tmp_path / name).write_text(lock)
    return FakeEnvironment(tmp_path)


def test_it_is_made_once(project, capsys):
    set_up(project, same_python=False)
    assert project.version() == tuple(sys.version_info[:2])
    pip, lock, editable = project.commands
    assert pip.startswith("python -m pip install")
    assert "--require-hashes -r" in pip
    file = project.root / venv.DEV_LOCK
    assert lock.startswith(
        f"uv pip install --python python --no-deps --require-hashes -r {file} "
        f"--build-constraints {file} "
    )
    assert editable.endswith(f"--no-deps --no-build-isolation --editable {project.root}")
    assert project.settings["UV_DEFAULT_INDEX"] == "https://mirror.test/simple"
    assert "this downloads some 850 MB" in capsys.readouterr().out
    set_up(project, same_python=False)
    set_up(project, same_python=True)
    assert len(project.commands) == 3
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("changed", venv.SOURCES)
def test_it_is_updated_when_a_source_changes(project, changed):
    set_up(project, same_python=False)
    mark = project.path / "still here"
    mark.touch()
    with (project.root / changed).open("a") as file:
        file.write("# another\n")
    assert not project.ready()
    set_up(project, same_python=False)
    assert len(project.commands) == 6
    assert mark.exists()
    assert project.ready()


def test_the_demo_installs_less_and_the_tests_add_the_rest(project):
    demo = FakeEnvironment(project.root, venv.LOCK)
    set_up(demo, same_python=False)
    assert demo.commands[0] == "embedded AWS"
    assert f"-r {project.root / venv.LOCK} " in demo.commands[2]
    assert demo.commands[-1] == "embedded AWS made"
    assert demo.ready()
    assert not project.ready()
    mark = project.path / "still here"
    mark.touch()
    set_up(project, same_python=False)
    assert f"-r {project.root / venv.DEV_LOCK} " in project.commands[1]
    assert mark.exists()
    assert project.ready()
    assert demo.ready()  # there is more than it needs
    set_up(demo, same_python=True)
    assert len(demo.commands) == 5


def test_the_demo_after_the_tests_is_updated_with_the_lock(project):
    set_up(project, same_python=False)
    demo = FakeEnvironment(project.root, venv.LOCK)
    with (project.root / venv.LOCK).open("a") as file:
        file.write("# another\n")
    assert not demo.ready()
    set_up(demo, same_python=False)
    assert demo.ready()
    assert not project.ready()  # the other packages are those of the old lock


@pytest.mark.parametrize("failure", [None, KeyboardInterrupt])
def test_the_embedded_aws_is_set_up_meanwhile_or_ends(tmp_path, failure):
    package = tmp_path / "xorack" / "local"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    begun, made = tmp_path / "begun", tmp_path / "made"
    again = f"pathlib.Path({str(begun)!r}).write_text(str(os.getpid()))\n"
    slow = "while True: time.sleep(1)\n" if failure else ""
    end = f"pathlib.Path({str(made)!r}).touch()\n"
    (package / "environment.py").write_text(f"import os, pathlib, time\n{again}{slow}{end}")
    with suppress(KeyboardInterrupt), Environment(tmp_path).embedded_aws():
        if failure:
            while not (begun.exists() and begun.read_text()):
                time.sleep(0.01)
            raise failure
    assert made.exists() == (failure is None)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), SetupError("no such package")])
def test_after_a_failure_it_starts_from_scratch(project, failure):
    project.failure = failure
    with pytest.raises(type(failure)):
        set_up(project, same_python=False)
    assert not project.ready()
    # What pip is to install: only uv.
    assert (project.path / ".xorack-installing").read_text() == "uv==2 \\\n    --hash=h\n"
    half = project.path / "half a package"
    half.touch()
    project.failure = None
    set_up(project, same_python=False)
    assert project.ready()
    assert not half.exists()


def test_an_environment_without_its_python_is_made_again(project):
    set_up(project, same_python=False)
    for name in ("python", "python3"):
        (project.path / "bin" / name).unlink()
        (project.path / "bin" / name).symlink_to("/nowhere/python")
    assert not project.ready()
    set_up(project, same_python=False)
    assert project.ready()
    assert project.version() >= venv.OLDEST


def test_a_link_to_another_environment_is_replaced_and_that_one_kept(project):
    others = project.path.with_name("of another checkout")
    set_up(project, same_python=False)
    project.path.rename(others)
    project.path.symlink_to(others)
    assert project.ready()
    with (project.root / venv.LOCK).open("a") as file:
        file.write("# another\n")
    before = (others / ".xorack-installed").read_text()
    set_up(project, same_python=False)
    assert project.ready()
    assert not project.path.is_symlink()
    assert (others / ".xorack-installed").read_text() == before


def test_an_outdated_lock_is_not_installed(project):
    (project.root / venv.REQUIREMENTS[0]).write_text("a==2\n")
    with pytest.raises(SetupError, match="make lock renews"):
        project.install()


def test_a_failing_installer_is_named(tmp_path):
    with pytest.raises(SetupError, match=r"-c import sys; sys.exit\(3\) failed"):
        Environment(tmp_path).run(sys.executable, "-c", "import sys; sys.exit(3)")


def test_uv_gets_the_settings_of_pip():
    listed = (
        "global.extra-index-url='https://a.test/x\\nhttps://b.test/y'\n"
        "global.find-links='/a /b'\nglobal.index-url='https://global.test'\n"
        ":env:.index-url='https://env.test'\ninstall.index-url='https://install.test'\n"
        "global.timeout='60'\n"
    )
    assert venv.uv_settings(listed) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://env.test",
        "UV_INDEX": "https://a.test/x https://b.test/y",
        "UV_FIND_LINKS": "/a,/b",
    }


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Without the variables of a make that runs this test.
    dropped = ("MAKE", "MFLAGS", "PYTHON", "DIR", "LOSE", "ARGS")
    kept = {name: held for name, held in os.environ.items() if not name.startswith(dropped)}
    command = (MAKE, "-C", str(ROOT), "--no-print-directory", *arguments)
    return run(*command, **{**kept, **environment})


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
    for arguments, path, message in (
        ([f"PYTHON={old}"], None, f"{old} is not Python 3.10 or later (Python 3.8.10): name one"),
        ([f"PYTHON={broken}"], None, f"{broken} is not Python 3.10 or later (it does not run)"),
        (["PYTHON=/no/python3"], None, "there is no /no/python3: install Python 3.10 or later"),
        ([], tmp_path, "python3 is not Python 3.10 or later (Python 3.8.10): name one"),
    ):
        ran = make(target, *arguments, **({"PATH": str(path)} if path else {}))
        assert ran.returncode != 0
        assert f"error: {message}" in ran.stderr


def test_a_newer_python_is_found_where_python3_is_too_old(tmp_path):
    script(tmp_path / "python3", "exit 1\n")
    script(tmp_path / "python3.13", "exit 127\n")  # as pyenv has it: named, but not there
    script(tmp_path / "python3.11", f'exec {sys.executable} "$@"\n')
    for target, command in (("venv", "tools/venv.py"), ("lock", "-m tools.dependencies lock")):
        ran = make("-n", target, PATH=str(tmp_path))
        assert ran.returncode == 0, ran.stderr
        assert f'"python3.11" {command}' in ran.stdout
        assert "--same-python" not in ran.stdout


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
        ("measure", (), []),
        ("measure", (f"STACK={escaped}", "ARGS=--yes"), ["--stack", special, "--yes"]),
    ):
        log.unlink(missing_ok=True)
        fakes = (f"PY={python}", f"PYTHON={unused}")
        others = {"DIR": "/not/from/the/environment", "STACK": "nor-this"}
        ran = make(target, *fakes, *arguments, **others)
        assert ran.returncode == 0, ran.stderr
        assert log.read_text().splitlines() == ["-m", target, *expected]


def test_make_passes_arguments_on_to_the_cdk(tmp_path):
    # In place of the set-up and of the node in .venv; nothing is installed or deployed.
    log, programs = tmp_path / "log", tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("npm", "npx"):
        script(programs / name, f'echo {name} "$@" >> {log}\n')
    arguments = "-c batch_size=500 --require-approval never"
    unused = script(tmp_path / "unused", "")
    ran = make("deploy", f"CURDIR={tmp_path}", f"PYTHON={unused}", f"ARGS={arguments}")
    assert ran.returncode == 0, ran.stderr
    assert log.read_text().splitlines() == [
        "npm ci --no-audit --no-fund --loglevel=error",
        f"npx --no-install cdk deploy {arguments}",
    ]


@pytest.mark.parametrize(
    "target",
    ["demo", "measure", "check", "test", "test-slow", "test-all", "lint", "types", "format",
     "synth", "deploy"],
)  # fmt: skip
def test_every_target_that_runs_something_sets_up_first(target):
    ran = make("-n", target, f"PYTHON={sys.executable}")
    assert ran.returncode == 0, ran.stderr
    assert "tools/venv.py" in ran.stdout
    assert ran.stdout.index("tools/venv.py") < ran.stdout.rindex(".venv/bin")


def test_help_is_the_default_and_names_every_target():
    printed = make()
    assert printed.returncode == 0
    lines = (ROOT / "Makefile").read_text().splitlines()
    targets = next(line.split()[1:] for line in lines if line.startswith(".PHONY:"))
    assert {line.split()[1] for line in printed.stdout.splitlines()} == set(targets)


def test_the_build_server_runs_make_test_and_returns_its_status(tmp_path):
    log = tmp_path / "log"
    script(tmp_path / "make", f'echo "$@" "$(pwd)" > {log}\nexit 7\n')
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ran = run(str(ROOT / ".ci" / "run"), cwd=tmp_path, **{**os.environ, "PATH": path})
    assert ran.returncode == 7
    assert log.read_text().split() == ["test", str(ROOT)]
