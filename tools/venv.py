"""Makes or updates a virtual environment of this checkout: `python3 tools/venv.py dev`.

pip installs uv into `.venv-uv`. uv installs all other packages, but only files whose hashes are in
the lock file. The registries come from pip's settings. `python3 tools/venv.py uv ARGUMENTS` runs
uv.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements.lock"
REQUIREMENTS = "requirements.txt"
FOR_TESTS = "# For tests alone"
"""The beginning of the part of requirements.txt that the demo does not install."""
ENVIRONMENTS = {
    "demo": (".venv", LOCK),
    "dev": (".venv", LOCK, "-r", REQUIREMENTS, "--group", "dev"),
    "docs": (".venv-docs", LOCK, "--group", "docs"),
    "policy-lint": (".venv-policy-lint", "tools/policy-lint.lock", "--group", "policy-lint"),
    "spark35": (".venv-spark35", "tools/spark35.lock", "--group", "spark35"),
}
"""Maps a name to a folder, a lock file and uv's arguments. `dev` contains those of `demo`."""
PYTHONS = {"spark35": ">=3.10,<3.12"}
"""Environments that need another version of Python than the running one."""
PIP_TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""Maps a setting of pip to a variable of uv and the separator of its values."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that only one process at a time installs into it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def uv_settings(pip_settings: str) -> dict[str, str]:
    """Translate the output of ``pip config list`` into uv's environment variables."""
    settings = {}
    for section in ("global", "install", ":env:"):  # later sections take precedence
        for name, value in re.findall(rf"^{section}\.(.+?)=(.*)$", pip_settings, re.MULTILINE):
            if name in PIP_TO_UV:
                variable, separator = PIP_TO_UV[name]
                settings[variable] = separator.join(ast.literal_eval(value).split())
    return settings


def uv(*arguments: str | Path) -> None:
    """Run the locked uv in the checkout, where its settings are. Install it if necessary."""
    folder = ROOT / ".venv-uv"
    python, pin, installed = folder / "bin/python", folder / "pin.txt", folder / "installed.txt"
    [wanted] = re.findall(r"^uv==.*\n(?:\s.*\n)*", (ROOT / LOCK).read_text(), re.MULTILINE)
    with locked(ROOT / "tools"):
        if not (installed.exists() and installed.read_text() == wanted and python.exists()):
            subprocess.check_call([sys.executable, "-m", "venv", "--clear", folder])
            pin.write_text(wanted)
            pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            subprocess.check_call([*pip, "--no-deps", "--require-hashes", "-r", pin])
            pin.rename(installed)
    listed = subprocess.check_output([python, "-m", "pip", "config", "list"], text=True)
    settings = {**uv_settings(listed), **os.environ}  # the caller's own UV_* take precedence
    subprocess.check_call([folder / "bin/uv", *arguments], cwd=ROOT, env=settings)


def contents(path: Path, same_python: bool) -> str:
    """Return an environment's stamp file, or an empty text if it has to be made again."""
    python, stamp = path / "bin/python", path / ".installed"
    if not (python.exists() and stamp.exists()):
        return ""
    other = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    if same_python and subprocess.call([python, "-c", other], stderr=subprocess.DEVNULL):
        return ""
    return stamp.read_text()


def demo_packages() -> list[str]:
    """Return the packages that the demo needs: the first part of requirements.txt."""
    part = (ROOT / REQUIREMENTS).read_text(encoding="utf-8").partition(FOR_TESTS)[0]
    return [line for line in part.splitlines() if line and not line.startswith("#")]


def environment(name: str, same_python: bool = False) -> Path:
    """Make or update one of `ENVIRONMENTS`; return the folder of its programs.

    The environment's stamp file has its name and a hash of its requirements, and is written last.
    With `same_python`, an environment with another version of Python is replaced.
    """
    folder, lock, *needs = ENVIRONMENTS[name]
    needs = needs or demo_packages()
    path = ROOT / folder
    sources = [(ROOT / source).read_bytes() for source in (REQUIREMENTS, "pyproject.toml", lock)]
    digest = hashlib.sha256(b"\0".join(sources)).hexdigest()
    ready = {f"{each} {digest}" for each in ((name, "dev") if name == "demo" else (name,))}
    if contents(path, same_python) in ready:
        return path / "bin"
    with locked(ROOT):
        stamp = contents(path, same_python)
        if stamp in ready:  # another process has made it while this process waited
            return path / "bin"
        print(f"Setting up {folder}: the first time, this downloads some hundred MB", flush=True)
        if path.is_symlink():  # a link to another checkout's environment, which must not change
            path.unlink()
            stamp = ""
        if not stamp:
            uv("venv", "--quiet", "--clear", "--python", PYTHONS.get(name, sys.executable), path)
        (path / ".installed").unlink(missing_ok=True)
        install = ("pip", "install", "--quiet", "--python", path / "bin/python")
        uv(*install, "--require-hashes", *needs, "--constraints", lock, "--build-constraints", lock)
        if folder == ".venv":
            uv(*install, "--no-deps", "--no-build-isolation", "--editable", ".")
        (path / ".installed").write_text(f"{name} {digest}")
    return path / "bin"


def main() -> int:
    name, *options = sys.argv[1:]
    try:
        if name == "uv":
            uv(*options)
        elif name == "demo":  # the demo also needs the embedded AWS's environment
            embedded = [sys.executable, "-m", "xorack.local.environment"]
            with subprocess.Popen(embedded, cwd=ROOT, stdout=subprocess.DEVNULL):
                environment(name, "--same-python" in options)
        else:
            environment(name, "--same-python" in options)
    except subprocess.CalledProcessError as error:
        hint = "" if name == "uv" else " (has a requirement changed? `make lock`)"
        command = " ".join(map(str, error.cmd[:3]))
        print(f"error: {command} failed: see above{hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
