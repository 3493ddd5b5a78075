"""What a cold start imports: each handler against `import boto3` alone, in processes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.harness import Goal, Section, Table, figure, interleaved, medians

ROOT = Path(__file__).resolve().parent.parent
HANDLERS = ("consumer", "sweeper", "widget")
_CODE = ("lambda_src", "xorack")
_TIMED = (
    "from time import perf_counter as now; before = now(); import {}; print((now() - before) * 1e3)"
)
_NOTE = (
    "*compiled*: all of it has its bytecode. *as deployed*: boto3 and Powertools have theirs, our "
    "own modules have none: the functions' code comes without (it may be synthesised by another "
    "Python than Lambda's), and Lambda's folder of it can only be read, so every cold start "
    "compiles it."
)


def import_milliseconds(module: str, folder: Path, *, keep_bytecode: bool = False) -> float:
    """How long a fresh Python takes to import a module.

    Args:
        module: The module.
        folder: Where our own code is.
        keep_bytecode: Whether Python may keep what it compiles; otherwise it compiles anew what has
            no bytecode yet.

    Returns:
        Milliseconds.
    """
    command = [sys.executable, "-c", _TIMED.format(module)]
    settings = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    environment = {name: value for name, value in os.environ.items() if name not in settings}
    if not keep_bytecode:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=folder, env=environment
    )
    return float(done.stdout.split()[-1])


def _copy(folder: Path) -> Path:
    """Our own code, without bytecode."""
    for name in _CODE:
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    return folder


def run(quick: bool = False) -> Section:
    """Import each, in turn."""
    rounds = 2 if quick else 11
    modules = ["boto3", "boto3, aws_lambda_powertools"]
    modules += [f"lambda_src.{name}" for name in HANDLERS]
    with tempfile.TemporaryDirectory() as scratch:
        compiled, bare = _copy(Path(scratch, "compiled")), _copy(Path(scratch, "bare"))
        for module in modules:
            import_milliseconds(module, compiled, keep_bytecode=True)
            import_milliseconds(module, bare)  # so that it is in the disk's cache
        jobs = {f"{module}, compiled": partial(import_milliseconds, module, compiled)
                for module in modules}  # fmt: skip
        jobs |= {f"{module}, as deployed": partial(import_milliseconds, module, bare)
                 for module in modules[2:]}  # fmt: skip
        middle = medians(interleaved(jobs, rounds))
    boto3 = middle["boto3, compiled"]
    table = Table(["import", "ms compiled", "times boto3", "ms as deployed", "times boto3"])
    table.note = _NOTE
    section = Section(
        "cold_start",
        "Cold start",
        f"What a fresh Python takes to import each; medians of {rounds} rounds in turn.",
        [table],
        raw={"milliseconds": middle},
    )
    for module in modules:
        cells = [f"`{module}`"]
        for how in ("compiled", "as deployed"):
            ms = middle.get(f"{module}, {how}")
            cells += ["", ""] if ms is None else [figure(ms), figure(ms / boto3)]
            if ms is not None and module.startswith("lambda_src"):
                what = f"`{module}`, {how}: times `import boto3`"
                section.goals.append(Goal(what, ms / boto3, 1.3, "less"))
        table.rows.append(cells)
    return section
