"""Make the lock files of a checkout and the embedded AWS; audit the checkout's.

    python3 -m tools.dependencies lock [uv's arguments, such as --upgrade]
    python3 -m tools.dependencies audit [pip-audit's arguments, such as -s osv]

The tools are in a virtual environment of their own, ``.venv-lock``. A lock holds for every Python
from 3.10 on and for every platform, has the hashes of all files, and names no registry: that is the
machine's setting (uv: ``UV_DEFAULT_INDEX``).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tools.venv import DEV_LOCK, LOCK, OLDEST, ROOT, requirements_hash, tool_environment

NEEDS: Final = ("uv==0.13.9", "pip-audit==2.10.1")
OTHER_LOCKS: Final = {"xorack/local/requirements.txt": "xorack/local/requirements.lock"}
"""Requirements of the embedded AWS's environment, and their lock."""
CLEAN, VULNERABLE, NOT_AUDITED = 0, 1, 2


def lock(programs: Path, arguments: Sequence[str]) -> int:
    """Renew the lock files with uv, whose exit status is returned; keep versions that still fit."""
    made_of = requirements_hash(ROOT)  # `tools/venv.py` compares it
    head = f"# What a checkout installs: made by `make lock`.\n# Made of: {made_of}\n"
    status = _compile(programs, arguments, "requirements.txt", LOCK, head)
    same = (*arguments, "--constraints", LOCK)  # `make test` after `make demo` only adds packages
    status = status or _compile(programs, same, "requirements-dev.txt", DEV_LOCK, head)
    for source, name in OTHER_LOCKS.items():
        status = status or _compile(programs, arguments, source, name)
    return status


def _compile(
    programs: Path, arguments: Sequence[str], source: str, name: str, head: str = ""
) -> int:
    path = ROOT / name
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, LOCK)
        if path.exists():
            made.write_bytes(path.read_bytes())
        command = [
            *(programs / "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
            *("--python-version", ".".join(map(str, OLDEST))),
            *("--no-header", "--no-emit-index-url", "--no-emit-find-links"),
            *("--output-file", made, *arguments, source),
        ]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if status == 0:
            path.write_text(head + made.read_text())
    return status


def audit(programs: Path, arguments: Sequence[str], locked: Path = ROOT / DEV_LOCK) -> int:
    """Report the known vulnerabilities of the locked versions with pip-audit.

    Its own exit status is 0 if the service knows none of the packages, as a mirror of files does.

    Returns:
        CLEAN, VULNERABLE, or NOT_AUDITED if the service does not know all packages.
    """
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch, "report.json")
        command = [
            *(programs / "pip-audit", "--requirement", locked, "--require-hashes"),
            *("--disable-pip", "--progress-spinner", "off"),
            *("--format", "json", "--output", written, *arguments),
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if written.exists():
            return report(json.loads(written.read_text())["dependencies"])
    reason = (process.stderr.strip() or "pip-audit failed").splitlines()[-1]
    if host := re.search(r"host='([^']+)'", reason):
        reason = f"the vulnerability service at {host[1]} cannot be reached from here"
    print(f"error: not audited: {reason}", file=sys.stderr)
    return NOT_AUDITED


def report(packages: Sequence[dict[str, Any]]) -> int:
    """Print the vulnerabilities of pip-audit's packages; return the exit status of `audit`."""
    status = CLEAN
    for package in packages:
        for vulnerability in package.get("vulns", ()):
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
            name = f"{package['name']} {package['version']}"
            print(f"{name}: {vulnerability['id']}, fixed in {fixed}")
            status = VULNERABLE
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if unknown or not packages:
        names = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        print(
            f"error: not audited: the vulnerability service does not know {len(unknown)} of "
            f"{len(packages)} packages ({names}): it may be a mirror of the files only",
            file=sys.stderr,
        )
        return status or NOT_AUDITED
    if status == CLEAN:
        print(f"{len(packages)} packages, no known vulnerability")
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew the lock file, or audit it; return the exit status."""
    name, *others = list(sys.argv[1:] if arguments is None else arguments) or [""]
    command = {"lock": lock, "audit": audit}.get(name)
    if command is None:
        print("usage: python3 -m tools.dependencies lock|audit [ARGUMENTS]", file=sys.stderr)
        return 2
    try:
        return command(tool_environment(ROOT / ".venv-lock", NEEDS), others)
    except subprocess.CalledProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_AUDITED


if __name__ == "__main__":
    sys.exit(main())
