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

HANDLERS = ("lambda_src.consumer", "lambda_src.sweeper", "lambda_src.widget")
MODULES = ("boto3", "boto3, aws_lambda_powertools", *HANDLERS)
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


def as_deployed(folder: Path, bytecode: Path) -> dict[str, str]:
    """Return the variables under which all modules but those of a folder have bytecode."""
    settings = {"PYTHONPYCACHEPREFIX": str(bytecode)}
    import_milliseconds(", ".join(HANDLERS), folder, settings)
    shutil.rmtree(bytecode.joinpath(*folder.resolve().parts[1:]))
    return {**settings, "PYTHONDONTWRITEBYTECODE": "1"}


def measure(quick: bool) -> Figures:
    """Import each module, in turn."""
    from xorack.cdk.code import assemble_code

    rounds = 2 if quick else 11
    with tempfile.TemporaryDirectory() as scratch:
        folder = shutil.copytree(assemble_code(), Path(scratch, "code"))
        compiled = {"PYTHONPYCACHEPREFIX": str(Path(scratch, "bytecode"))}
        ways = {"compiled": compiled, "as deployed": as_deployed(folder, Path(scratch, "runtime"))}
        jobs = {}
        for module in MODULES:
            for way in ["compiled"] if module == "boto3" else ways:
                job = partial(import_milliseconds, module, folder, ways[way])
                job()  # fills the disk's cache, and that of bytecode
                jobs[f"{module}, {way}"] = job
        figures = interleaved(jobs, rounds)
        milliseconds = {name: median(of) for name, of in figures.items()}
        return {"rounds": rounds, "milliseconds": milliseconds}


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    imports = Table(["import", "ms compiled", "times boto3", "ms as deployed", "times boto3"])
    times, goals = figures["milliseconds"], []
    ratios = {name: ms / times["boto3, compiled"] for name, ms in times.items()}
    for module in MODULES:
        names = [f"{module}, {way}" for way in ("compiled", "as deployed")]
        imports.add(f"`{module}`", *(of.get(name) for name in names for of in (times, ratios)))
        if module in HANDLERS:
            goals += [
                Goal(f"`{module}`, {name.split(', ')[-1]}: times `import boto3`", ratios[name],
                     1.3, "less")
                for name in names
            ]  # fmt: skip
    return [imports, goal_table(goals)]
