"""The functions' code: the handlers, this library, and packages that Lambda's runtime lacks.

A wheel contains the code as Lambda needs it. In a checkout, this module collects the handlers, the
modules that they import, and the installed packages. ADR 10 in docs/adr/ has the reasons.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, Final

from xorack.core.errors import StateError

_LIBRARY: Final = Path(__file__).resolve().parents[1]
_IN_WHEEL: Final = _LIBRARY / "local" / "app" / "assembly"  # setup.py creates this folder
LAMBDA_PYTHON: Final = (3, 13)
"""The Python version of the functions' runtime."""
_HANDLERS: Final = ("lambda_src.consumer", "lambda_src.sweeper")
_FOR_TYPES_ALONE: Final = [f"xorack.{name}" for name in ("client", "compat")]
"""Modules that are imported only under `TYPE_CHECKING`, which the finder does not know."""
_PACKAGES: Final = ("aws-lambda-powertools==3.37.0", "jmespath==1.1.0", "typing_extensions==4.16.0")
_NOT_USED: Final = "aws_lambda_powertools/event_handler"  # for web APIs; 1.4 MB of JavaScript


@lru_cache(maxsize=1)
def assemble_code() -> Path:
    """Copy all code into a folder, which is deleted when the process ends.

    The folder has bytecode if a Python of Lambda's version is installed, or if the wheel has it.
    """
    folder = Path(tempfile.mkdtemp(prefix="xorack-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shipped = next(_IN_WHEEL.glob("asset.*"), None)
    if shipped is not None:
        shutil.copytree(shipped, folder, ignore=_compiled_by_pip, dirs_exist_ok=True)
    else:
        _gather(folder)
    _compile(folder)
    # Lambda's user does not own the files, and the CDK keeps each file's mode.
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def _gather(folder: Path) -> None:
    """Copy the handlers of a checkout and the modules that they import."""
    for source in handlers_closure(_LIBRARY.parent):
        target = folder / source.relative_to(_LIBRARY.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    for release in _PACKAGES:
        _copy_package(release, folder)


def _compile(folder: Path) -> None:
    """Add bytecode, which Lambda would otherwise compile in each cold start.

    The bytecode has unchecked hashes. The CDK sets all files to the year 1980, and Python would
    reject bytecode with another date.
    """
    python = find_python(LAMBDA_PYTHON)
    if python is None:
        return
    command = [python, "-m", "compileall", "-q", "-f", "--invalidation-mode"]
    # A fixed seed orders the sets in constants, so that the bytes are always the same.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    for name in ("PYTHONPYCACHEPREFIX", "PYTHONPATH", "PYTHONHOME"):
        environment.pop(name, None)
    subprocess.run([*command, "unchecked-hash", "-s", folder, folder], env=environment, check=True)


def find_python(version: tuple[int, int]) -> str | None:
    """Return the program of a Python version, or None if it is neither running nor on PATH."""
    if sys.version_info[:2] == version:
        return sys.executable
    for folder in os.get_exec_path():
        candidate = Path(folder, "python{}.{}".format(*version))
        if not os.access(candidate, os.X_OK):
            continue
        # The program may be a stub, such as pyenv's stub for a version that is not active.
        command = [str(candidate), "-c", "import sys; print(*sys.version_info[:2])"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.stdout.split() == [str(part) for part in version]:
            return str(candidate)
    return None


def _compiled_by_pip(_: str, names: list[str]) -> list[str]:
    """Return the bytecode that pip compiled with the user's Python when it installed the wheel."""
    tag = "cpython-{}{}".format(*LAMBDA_PYTHON)
    return [name for name in names if name.endswith(".pyc") and f".{tag}." not in name]


def handlers_closure(root: Path) -> list[Path]:
    """Return the files of a checkout that the handlers import, even inside functions."""
    finder = ModuleFinder([str(root)], excludes=_FOR_TYPES_ALONE)
    for handler in _HANDLERS:
        finder.import_hook(handler)
    modules: Iterable[Any] = finder.modules.values()
    return sorted(Path(module.__file__) for module in modules if module.__file__)


def _copy_package(release: str, folder: Path) -> None:
    """Copy an installed package with its licence; raise StateError if its release is different."""
    name, _, version = release.partition("==")
    installed = next(iter(metadata.distributions(name=name)), None)
    if installed is None or installed.version != version:
        problem = f"{installed.version} is" if installed else "is not"
        raise StateError(
            f"{name} {problem} installed, but the functions' code needs {release}: run "
            f"pip install --no-deps '{release}'"
        )
    for path in filter(_is_copied, installed.files or ()):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.locate(), folder / path)


def _is_copied(path: metadata.PackagePath) -> bool:
    if path.parts[0].endswith(".dist-info"):
        return path.name in ("LICENSE", "METADATA")
    is_module = path.suffix in (".py", ".typed") and path.parts[0] != ".."  # no scripts
    return is_module and not path.as_posix().startswith(_NOT_USED)
