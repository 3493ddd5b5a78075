"""Set-up: environments are whole and up to date, and make passes its arguments on."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.synth import ROOT
from tools import venv

from .templates import run

MAKE = shutil.which("make") or "make"
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "project"
version = "1"
[dependency-groups]
dev = ["tests==1"]
"""
BACKEND = """
import pathlib, shutil
def build_editable(folder, *_):
    shutil.copy("registry/project/project-1-py3-none-any.whl", folder)
    return "project-1-py3-none-any.whl"
"""


def publish(folder: Path, name: str, script: str = "") -> str:
    """Write a wheel of version 1 into a registry, perhaps with a program; return its lock."""
    files = {
        f"{name}.py": "",
        f"{name}-1.data/scripts/{name}": script,
        f"{name}-1.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{name}-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n",
    }
    path = folder / name / f"{name}-1-py3-none-any.whl"
    path.parent.mkdir(parents=True)
    (path.parent / "index.html").write_text(f'<a href="{path.name}">{path.name}</a>')
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            info = zipfile.ZipInfo(file)
            info.external_attr = 0o100755 << 16
            archive.writestr(info, text)
        archive.writestr(f"{name}-1.dist-info/RECORD", "".join(f"{file},,\n" for file in files))
    return f"{name}==1 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Project:
    """A small checkout, with a registry."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = root / "registry"
        self.venv = root / ".venv"

    def write(self) -> None:
        self.root.mkdir()
        real = ROOT / ".venv-uv" / "bin" / "uv"
        lines = [publish(self.registry, "uv", f'#!/bin/sh\nexec "{real}" "$@"\n')]
        lines += [publish(self.registry, name) for name in ("demo", "tests", "project")]
        (self.root / "requirements.lock").write_text("".join(lines))
        (self.root / "requirements.txt").write_text("demo==1\n")
        (self.root / "pyproject.toml").write_text(PYPROJECT)
        (self.root / "backend.py").write_text(BACKEND)
        (self.root / "tools").mkdir()
        shutil.copy(venv.__file__, self.root / "tools")
        embedded = self.root / "xorack" / "local" / "environment.py"
        embedded.parent.mkdir(parents=True)
        embedded.write_text("open('embedded', 'w')\n")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        kept = {"PATH", "HOME", "LANG", "TMPDIR"}
        environment = {
            **{name: value for name, value in os.environ.items() if name in kept},
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": self.registry.as_uri(),
            "UV_CACHE_DIR": str(self.root / "cache"),
        }
        command = [sys.executable, self.root / "tools" / "venv.py", *arguments]
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=out, text=True)

    def set_up(self, *arguments: str, status: int = 0) -> str:
        process = self.start(*arguments)
        output, _ = process.communicate()
        assert process.returncode == status, output
        return output

    def installed(self) -> set[str]:
        return {path.stem for path in self.venv.glob("lib/python3*/site-packages/*.py")} - {
            "_virtualenv"
        }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("made") / "checkout")
    project.write()
    assert "Setting up .venv" in project.set_up("demo")
    return project


@pytest.fixture
def project(made, tmp_path):
    """A checkout with what the demo needs."""
    copy = Project(tmp_path / "checkout")
    shutil.copytree(made.root, copy.root, symlinks=True)
    return copy


@pytest.mark.thorough
def test_the_demo_installs_less_and_the_tests_add_the_rest(project):
    assert project.installed() == {"demo", "project"}
    assert (project.root / "embedded").exists()
    assert project.set_up("demo") == ""
    mark = project.venv / "still here"
    mark.touch()
    assert project.set_up("dev")
    assert project.installed() == {"demo", "tests", "project"}
    assert mark.exists()
    for name in ("dev", "demo"):  # there is more than the demo needs
        assert project.set_up(name, "--same-python") == ""


@pytest.mark.thorough
@pytest.mark.parametrize("source", ["requirements.txt", "requirements.lock", "pyproject.toml"])
def test_an_outdated_environment_is_updated(project, source):
    mark = project.venv / "still here"
    mark.touch()
    with (project.root / source).open("a") as file:
        file.write("# another\n")
    assert project.set_up("demo")
    assert mark.exists()
    assert project.set_up("demo") == ""


@pytest.mark.thorough
def test_after_a_failure_it_starts_from_scratch(project):
    lock = project.root / "requirements.lock"
    whole = lock.read_text()
    lock.write_text(re.sub(r"(tests==1.*\n.*sha256:)....", r"\1beef", whole))
    half = project.venv / "half a package"
    half.touch()
    output = project.set_up("dev", status=1)
    assert "Hash mismatch for `tests==1`" in output
    assert "error: " in output
    assert "Traceback" not in output
    lock.write_text(whole)
    assert half.exists()
    project.set_up("dev")
    assert project.installed() == {"demo", "tests", "project"}
    assert not half.exists()


@pytest.mark.thorough
def test_what_the_lock_lacks_is_not_installed(project):
    (project.root / "requirements.txt").write_text("demo==1\ntests==1\nproject==1\nuv==2\n")
    assert "make lock" in project.set_up("demo", status=1)


@pytest.mark.thorough
def test_an_environment_without_its_python_is_made_again(project):
    for python in (project.venv / "bin").glob("python*"):
        python.unlink()
        python.symlink_to("/nowhere/python")
    assert project.set_up("demo")
    assert run(str(project.venv / "bin" / "python"), "-c", "import demo").returncode == 0


@pytest.mark.thorough
def test_a_link_to_another_environment_is_replaced_and_that_one_kept(project):
    others = project.root / "of another checkout"
    project.venv.rename(others)
    project.venv.symlink_to(others)
    assert project.set_up("demo") == ""
    project.set_up("dev")
    assert not project.venv.is_symlink()
    assert (others / ".installed").read_text().startswith("demo ")


@pytest.mark.thorough
def test_of_two_runs_at_once_one_installs(project):
    shutil.rmtree(project.venv)
    shutil.rmtree(project.root / ".venv-uv")
    runs = [project.start("dev") for _ in range(2)]
    outputs = [process.communicate()[0] for process in runs]
    assert [process.returncode for process in runs] == [0, 0], outputs
    assert sum(output.count("Setting up") for output in outputs) == 1
    assert project.installed() == {"demo", "tests", "project"}


def test_an_environment_of_another_python_is_replaced_on_demand(tmp_path):
    (tmp_path / ".installed").write_text("dev of some lock")
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    for text, same in ((f'exec {sys.executable} "$@"\n', "dev of some lock"), ("exit 1\n", "")):
        script(python, text)
        assert venv.contents(tmp_path, same_python=True) == same
        assert venv.contents(tmp_path, same_python=False) == "dev of some lock"


def test_uv_gets_the_settings_of_pip():
    listed = (
        "global.extra-index-url='https://a.test/x\\nhttps://b.test/y'\n"
        "global.find-links='/a /b'\nglobal.index-url='https://global.test'\n"
        ":env:.index-url='https://env.test'\ninstall.index-url='https://install.test'\n"
        "global.timeout='60'\n"
    )
    assert venv.uv_settings(listed) == {
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
    ran = make("-n", "venv", PATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert '"python3.11" tools/venv.py dev' in ran.stdout
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
