"""The judges of an environment of their own, `.venv-judges`: checkov and parliament.

Both run offline: an attempt to connect is an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.judges.policies import policies
from tools.judges.stacks import Judged
from tools.judges.table import Finding
from tools.venv import environment

OUTSIDE: Final = ("checkov", "parliament")
_OFFLINE: Final = """
import os, socket

def refuse(self, address):
    if isinstance(address, tuple):
        with open(os.environ["CONNECTIONS"], "a") as log:
            print(address, file=log)
        raise OSError("offline")

def look_up(host, *rest, **options):
    refuse(None, (host, *rest[:1]))

socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = look_up
"""


class JudgeError(Exception):
    """A judge did not run as it should; the text contains its output."""


def outside_findings(stacks: Iterable[Judged]) -> dict[Judged, set[Finding]]:
    """Return the findings of checkov and parliament; set up their environment first.

    Raises:
        JudgeError: One failed, or tried to connect to a host.
    """
    programs = environment("judges")
    by_name = {judged.name: judged for judged in stacks}
    with tempfile.TemporaryDirectory() as scratch:
        offline = Offline(Path(scratch), programs)
        return _by_stack([*checkov(offline, by_name), *parliament(offline, by_name)], by_name)


class Offline:
    """Programs that run in a scratch folder, without a network and without settings of a user."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._connections = folder / "connections"
        (folder / "sitecustomize.py").write_text(_OFFLINE)

    def run(self, program: str, *arguments: str) -> str:
        """Run a program that finds something (exit status 1) or nothing (0); return its output.

        Raises:
            JudgeError: It failed, or tried to connect.
        """
        environment = {
            "PATH": os.pathsep.join((str(self._programs), os.defpath)),
            "HOME": str(self.folder),
            "PYTHONPATH": str(self.folder),
            "PYTHONWARNINGS": "ignore",
            "CONNECTIONS": str(self._connections),
            "CKV_SKIP_PACKAGE_UPDATE_CHECK": "true",
        }
        process = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if self._connections.exists():
            raise JudgeError(f"{program} tried to connect: {self._connections.read_text()}")
        if process.returncode not in (0, 1) or process.stderr.strip():
            raise JudgeError(f"{program} failed: {process.stderr or process.stdout}")
        return process.stdout


_Named = Iterator[tuple[str, Finding]]


def checkov(offline: Offline, stacks: Mapping[str, Judged]) -> _Named:
    """Judge templates: their resources, and text that looks like a secret.

    Raises:
        JudgeError: It failed, tried to connect, or could not read a template.
    """
    names = list(stacks)
    for name in names:
        (offline.folder / f"{name}.json").write_text(json.dumps(stacks[name].template, indent=1))
    output = offline.run(
        *("checkov", "--framework", "cloudformation", "secrets", "--skip-download"),
        *("--quiet", "--compact", "--output", "json"),
        *(argument for name in names for argument in ("--file", f"{name}.json")),
    )
    reports = json.loads(output)
    for report in reports if isinstance(reports, list) else [reports]:
        if report["summary"]["parsing_errors"]:
            raise JudgeError(f"checkov could not read a template: {report['summary']}")
        for check in report["results"]["failed_checks"]:
            judged = stacks[Path(check["file_path"]).stem]
            resource = judged.named(check["resource"].rpartition(".")[2])
            yield judged.name, Finding("checkov", check["check_id"], resource)


def parliament(offline: Offline, stacks: Mapping[str, Judged]) -> _Named:
    """Judge the policies of roles and of resources, with the auditors of its community.

    Raises:
        JudgeError: It failed or tried to connect.
    """
    folder = offline.folder / "policies"
    folder.mkdir()
    places: dict[str, tuple[Judged, str]] = {}
    for judged in stacks.values():
        for resource, policy in policies(judged.template):
            path = folder / f"{len(places)}.json"
            path.write_text(json.dumps(policy))
            places[str(path)] = judged, judged.named(resource)
    output = offline.run(
        *("parliament", "--directory", str(folder), "--json", "--include-community-auditors")
    )
    for line in output.splitlines():
        found: dict[str, Any] = json.loads(line)
        judged, resource = places[found["location"]["filepath"]]
        # Without the action, the row of a new one would cover a misspelt one.
        unknown = re.fullmatch("Unknown action (.+)", str(found["detail"]))
        rule = found["issue"] + (f"[{unknown[1]}]" if unknown else "")
        yield judged.name, Finding("parliament", rule, resource)


def _by_stack(
    findings: Sequence[tuple[str, Finding]], stacks: Mapping[str, Judged]
) -> dict[Judged, set[Finding]]:
    grouped: dict[str, set[Finding]] = defaultdict(set)
    for name, finding in findings:
        grouped[name].add(finding)
    return {judged: grouped[name] for name, judged in stacks.items()}
