"""Imports of a cold start: each handler compared with `import boto3`, in processes of their own.

The functions' code is the asset of a deployment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from bench.harness import Figures, Goal, Table, goal_table, interleaved

BASE = "boto3"
HANDLERS = ("lambda_src.consumer", "lambda_src.sweeper", "lambda_src.widget")
COMPILED, PLAIN = "with bytecode", "without"
"""As a release is deployed, and as a Python other than Lambda's synthesises it."""
CLIENTS = "lambda_src.consumer and two clients"
_MAKE = (
    "lambda_src.consumer; from xorack.aws.client import make_client; "
    "[make_client(name) for name in ('dynamodb', 'events')]"
)
"""What the first invocation of a consumer does before its first call."""
_TIMED = (
    "from time import process_time as now; before = now(); import {}; print((now() - before) * 1e3)"
)


def import_milliseconds(module: str, folder: Path, settings: dict[str, str]) -> float:
    """Measure the processor time in which a new Python process in a folder imports a module."""
    ours = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    command = [sys.executable, "-c", _TIMED.format(module)]
    output = subprocess.check_output(command, cwd=folder, env=environment | settings, text=True)
    return float(output.split()[-1])


def measure(quick: bool) -> Figures:
    """Import each module, in turn."""
    from xorack.cdk.code import assemble_code

    with tempfile.TemporaryDirectory() as scratch:
        folder = shutil.copytree(assemble_code(), Path(scratch, "code"))
        compiled = {"PYTHONPYCACHEPREFIX": str(Path(scratch, "bytecode"))}
        plain = {"PYTHONPYCACHEPREFIX": str(Path(scratch, "plain"))}
        import_milliseconds(", ".join(HANDLERS), folder, plain)
        # All other modules keep their bytecode.
        shutil.rmtree(Path(scratch, "plain").joinpath(*folder.resolve().parts[1:]))
        plain["PYTHONDONTWRITEBYTECODE"] = "1"
        jobs = {BASE: partial(import_milliseconds, BASE, folder, compiled)}
        for module in HANDLERS:
            for way, settings in ((COMPILED, compiled), (PLAIN, plain)):
                jobs[f"{module}, {way}"] = partial(import_milliseconds, module, folder, settings)
        region = {**compiled, "AWS_REGION": "eu-west-1"}
        jobs[CLIENTS] = partial(import_milliseconds, _MAKE, folder, region)
        interleaved(jobs, 1)  # fills the disk's cache, and that of bytecode
        runs = interleaved(jobs, 2 if quick else 11)
        return {"milliseconds": {name: median(found) for name, found in runs.items()}}


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    imports, goals = Table(["import", "ms", f"times `import {BASE}`"]), []
    for name, milliseconds in figures["milliseconds"].items():
        ratio = milliseconds / figures["milliseconds"][BASE]
        imports.add(name, milliseconds, ratio)
        if name.endswith(COMPILED):
            goals.append(Goal(f"{name}: times `import {BASE}`", ratio, 1.3, "less"))
    return [imports, goal_table(goals)]
