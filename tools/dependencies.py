"""The lock file of what a checkout installs, and an audit of it.

    python3 -m tools.dependencies lock [uv's arguments, such as --upgrade]
    python3 -m tools.dependencies audit [pip-audit's arguments, such as -s osv]

Both in a virtual environment of their own, ``.venv-lock``, made at the first run. The lock holds
for every Python from 3.10 on and for every platform, has the hash of every file that may be
installed, and names no registry: which one is asked is the machine's business (uv:
``UV_DEFAULT_INDEX``).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tools.venv import LOCK, OLDEST, ROOT, made_of

PLACE: Final = ROOT / ".venv-lock"
NEEDS: Final = ("uv==0.13.9", "pip-audit==2.10.1")
CLEAN, VULNERABLE, NOT_AUDITED = 0, 1, 2


def set_up() -> Path:
    """Make the tools' environment if it is not there, or not what it must be; returns its bin."""
    programs, done = PLACE / "bin", PLACE / ".installed"
    wanted = hashlib.sha256("\n".join(NEEDS).encode()).hexdigest()
    if not (done.is_file() and done.read_text() == wanted and (programs / "python").exists()):
        print(f"Setting up {PLACE.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE], check=True)
        pip = [programs / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *NEEDS], check=True)
        done.write_text(wanted)
    return programs


def lock(programs: Path, arguments: Sequence[str]) -> int:
    """Renew the lock file; what it holds already stays as it is where it may.

    Args:
        programs: Where uv is.
        arguments: Passed on to uv.

    Returns:
        uv's exit status.
    """
    path = ROOT / LOCK
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, LOCK)
        if path.exists():
            made.write_bytes(path.read_bytes())
        status = subprocess.run(
            [
                *(programs / "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
                *("--python-version", ".".join(map(str, OLDEST))),
                *("--no-header", "--no-emit-index-url", "--no-emit-find-links"),
                *("--output-file", made, *arguments, "requirements-dev.txt"),
            ],
            cwd=ROOT,
            check=False,
        ).returncode
        if status == 0:
            # Written when all is well, with what it was made of: `tools/venv.py` compares.
            head = "# What a checkout installs: made by `make lock`.\n# Made of: "
            path.write_text(f"{head}{made_of(ROOT)}\n{made.read_text()}")
    return status


def audit(programs: Path, arguments: Sequence[str], locked: Path = ROOT / LOCK) -> int:
    """Ask which of the locked versions have known vulnerabilities, and say what is known.

    pip-audit itself says "no known vulnerabilities" and exits with 0 where the service knew none of
    the packages, as a mirror that has only files does.

    Args:
        programs: Where pip-audit is.
        arguments: Passed on to pip-audit.
        locked: The lock file.

    Returns:
        CLEAN, VULNERABLE, or NOT_AUDITED: the service could not be asked about all packages.
    """
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        ran = subprocess.run(
            [
                *(programs / "pip-audit", "--requirement", locked, "--require-hashes"),
                *("--disable-pip", "--progress-spinner", "off"),
                *("--format", "json", "--output", report, *arguments),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            print(f"error: not audited: {_reason(ran.stderr)}", file=sys.stderr)
            return NOT_AUDITED
        packages: list[dict[str, Any]] = json.loads(report.read_text())["dependencies"]
    return told(packages)


def _reason(said: str) -> str:
    """The last line of what pip-audit said, or that the service is not reached."""
    last = said.strip().splitlines()[-1] if said.strip() else "pip-audit said nothing"
    if host := re.search(r"host='([^']+)'", last):
        return f"the vulnerability service at {host[1]} cannot be reached from here"
    return last


def told(packages: Sequence[dict[str, Any]]) -> int:
    """Say what an audit found.

    Args:
        packages: The packages of pip-audit's report.

    Returns:
        The exit status, as `audit`'s.
    """
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    status = CLEAN
    for package in packages:
        for found in package.get("vulns", ()):
            fixed = ", ".join(found["fix_versions"]) or "no version"
            print(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
            status = VULNERABLE
    if unknown or not packages:
        names = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        print(
            f"error: not audited: the vulnerability service knows nothing of {len(unknown)} of "
            f"{len(packages)} packages ({names}): is it a mirror of the files alone?",
            file=sys.stderr,
        )
        return status or NOT_AUDITED
    if status == CLEAN:
        print(f"{len(packages)} packages, no known vulnerability")
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew the lock, or audit it.

    Args:
        arguments: The arguments; the process's by default.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    doing = {"lock": lock, "audit": audit}.get(given[0] if given else "")
    if doing is None:
        print("usage: python3 -m tools.dependencies lock|audit [ARGUMENTS]", file=sys.stderr)
        return 2
    try:
        return doing(set_up(), given[1:])
    except subprocess.CalledProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_AUDITED


if __name__ == "__main__":
    sys.exit(main())
