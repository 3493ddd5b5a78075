"""Imports of a cold start: each handler compared with `import boto3`, in processes of their own.

The functions' code is the asset of a deployment.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path

from bench import harness
from bench.harness import Figures, Goal, Plot, Section, Table

HANDLERS = ("lambda_src.consumer", "lambda_src.sweeper", "lambda_src.widget")
MODULES = ("boto3", "boto3, aws_lambda_powertools", *HANDLERS)
OWN = ("lambda_src/**/*", "xorack/**/*")
PACKAGES = ("aws_lambda_powertools*/**/*", "jmespath*/**/*", "typing_extensions*/**/*", "*.py")
_TIMED = (
    "from time import process_time as now; before = now(); import {}; print((now() - before) * 1e3)"
)


def import_milliseconds(module: str, folder: Path, settings: dict[str, str]) -> float:
    """Measure the processor time in which a new Python process in a folder imports a module."""
    ours = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    command = [sys.executable, "-c", _TIMED.format(module)]
    output = harness.run_process(command, cwd=folder, env=environment | settings)
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
        figures = harness.interleaved(jobs, rounds)
        return {
            "rounds": rounds,
            "milliseconds": harness.medians(figures),
            "asset": {"own": size(folder, OWN), "packages": size(folder, PACKAGES)},
        }


def size(folder: Path, patterns: tuple[str, ...]) -> dict[str, int]:
    """Count the files that patterns name, and their bytes, plain and zipped."""
    zipped, plain, files = io.BytesIO(), 0, 0
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (file for pattern in patterns for file in folder.glob(pattern)):
            if path.suffix != ".pyc" and path.is_file():
                archive.write(path, path.relative_to(folder))
                plain += path.stat().st_size
                files += 1
    return {"files": files, "bytes": plain, "zipped": len(zipped.getvalue())}


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(
        ["import", "ms compiled", "times boto3", "ms as deployed", "times boto3"],
        note="*compiled*: every module has its bytecode. *as deployed*: boto3 has, the modules of "
        "the asset have not. It contains no bytecode, since the Python that synthesises may be "
        "another than Lambda's. Lambda's code folder is read-only, so every cold start compiles "
        "them.",
    )
    times = figures["milliseconds"]
    ratios = {name: ms / times["boto3, compiled"] for name, ms in times.items()}
    for module in MODULES:
        names = [f"{module}, {way}" for way in ("compiled", "as deployed")]
        table.add(f"`{module}`", *(of.get(name) for name in names for of in (times, ratios)))
    bars = {name: ratio for name, ratio in ratios.items() if name.startswith(HANDLERS)}
    goals = []
    for name, ratio in bars.items():
        module, _, way = name.partition(", ")
        goals.append(Goal(f"`{module}`, {way}: times `import boto3`", ratio, 1.3, "less"))
    axes = {"xlabel": "times import boto3 (goal: at most 1.3)"}
    asset = Table(["the asset", "files", "KB", "KB zipped"])
    for name, of in figures["asset"].items():
        asset.add(name, of["files"], of["bytes"] / 1000, of["zipped"] / 1000)
    return Section(
        "Cold start",
        "Processor time of imports, in a new Python process each time; medians of "
        f"{figures['rounds']} rounds in turn.",
        [table, asset],
        goals,
        Plot("Imports compared with boto3's", "bars", {"ratio": bars}, 2.0, axes, goal=1.3),
    )
