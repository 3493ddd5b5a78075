"""Measures tracked and untracked jobs as the first jobs of a session, as users run them.

Each pair of jobs runs in a process of its own, with a Java that has compiled nothing. Starting the
session does not count.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import spark
from bench.harness import ROOT, Table, accepting_server, interleaved, with_bytecode
from bench.meter import Meter, cpu, ratios, spread
from pipeline.session import session
from xorack.spark import Tracking

SESSIONS = {"words": 5, "SF 1 by supplier": 5, "SF 2.7 in 200,000 chains": 3}
"""The sessions of each variant, by case: each case takes about five minutes."""


def run_alone(name: str, variant: str, folder: Path, queue_url: str, *, quick: bool) -> None:
    """Run a pair of jobs in this process; print their figures as JSON."""
    case = spark.smaller(spark.CASES[name]) if quick else spark.CASES[name]
    started = session("xorack bench")
    records = str(folder / "out" / "records")
    tracking = None
    if variant == spark.TRACKED:
        tracking = Tracking(started, queue_url, "bench", records)
    meter = Meter(started)
    jobs = spark.count_corpus if case.words else spark.run_jobs
    jobs(started, folder, case, tracking, meter)
    print(json.dumps(meter.figures()))
    started.stop()


def measure(quick: bool, case: str = "") -> list[Table]:
    """Measure the first jobs of sessions, in all cases or those with a text in their name.

    Variants take turns.
    """
    table = Table(["first jobs of a session", "variant", "CPU s", "ratio", *spark.STEPS])
    for name in filter(lambda name: case in name, SESSIONS):
        with accepting_server() as endpoint, TemporaryDirectory(prefix="xorack-bench-") as folder:
            jobs = spark.smaller(spark.CASES[name]) if quick else spark.CASES[name]
            spark.make_data(Path(folder, "data"), jobs)

            def run(variant: str, name: str = name, folder: str = folder) -> dict[str, Any]:
                arguments = [name, variant, folder, f"{endpoint}/1234/stamps", str(int(quick))]
                command = [sys.executable, "-m", "bench.spark_first", *arguments]
                kept = with_bytecode(f"{folder}/bytecode")
                output = subprocess.check_output(command, cwd=ROOT, env=kept)
                shutil.rmtree(f"{folder}/out")
                figures: dict[str, Any] = json.loads(output.splitlines()[-1])
                return figures

            variants = {one: lambda one=one: run(one) for one in jobs.variants}
            run(spark.TRACKED)  # run once before, so that Python has bytecode of all modules
            results = interleaved(variants, 1 if quick else SESSIONS[name])
        for variant, runs in results.items():
            spent = (median(cpu(one, [step]) for one in runs) or None for step in spark.STEPS)
            ratio = spread(ratios(results, variant, spark.UNTRACKED))
            table.add(name, variant, median(map(cpu, runs)), ratio, *spent)
    return [table]


if __name__ == "__main__":
    _name, _variant, _folder, _queue, _quick = sys.argv[1:]
    run_alone(_name, _variant, Path(_folder), _queue, quick=_quick == "1")
