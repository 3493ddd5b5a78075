"""Compares the imports of a cold start with `import boto3`, each in its own process.

The functions' code is the asset of a deployment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from bench.harness import Table, interleaved, with_bytecode

BASE = "boto3"
HANDLERS = ("lambda_src.consumer", "lambda_src.sweeper")
CLIENTS = "lambda_src.consumer and two clients"
_MAKE = (
    "lambda_src.consumer; from xorack.aws.client import make_client; "
    "[make_client(name) for name in ('dynamodb', 'events')]"
)
"""The work of a consumer's first invocation before its first call."""
_TIMED = (
    "from time import process_time as now; before = now(); import {}; print((now() - before) * 1e3)"
)


def import_milliseconds(module: str, folder: Path, settings: dict[str, str]) -> float:
    """Measure the processor time in which a new Python process imports a module in a folder."""
    command = [sys.executable, "-c", _TIMED.format(module)]
    output = subprocess.check_output(command, cwd=folder, env=settings, text=True)
    return float(output.split()[-1])


def measure(quick: bool) -> list[Table]:
    """Measure the imports of all modules in turns. They have bytecode, as in a deployed release."""
    from xorack.cdk.code import assemble_code

    with tempfile.TemporaryDirectory() as scratch:
        folder = shutil.copytree(assemble_code(), Path(scratch, "code"))
        settings = with_bytecode(f"{scratch}/bytecode") | {"AWS_REGION": "eu-west-1"}
        modules = {name: name for name in (BASE, *HANDLERS)} | {CLIENTS: _MAKE}
        jobs = {
            name: partial(import_milliseconds, code, folder, settings)
            for name, code in modules.items()
        }
        interleaved(jobs, 1)  # The first import fills the disk cache and makes the bytecode.
        runs = interleaved(jobs, 2 if quick else 11)
    table = Table(["import", "ms", f"times `import {BASE}`"])
    for name, times in runs.items():
        table.add(name, median(times), median(times) / median(runs[BASE]))
    return [table]
