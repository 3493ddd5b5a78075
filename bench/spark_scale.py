"""Large files and many files: the two jobs of `pipeline/` where their shape is the hard part.

Two databases: one file of 1 GiB among 5,000 of 0.6 KB, and 100,000 files of 0.6 KB. The jobs run
as a user runs them, a process each, traced stamps, all settings as they are. What comes to the
queue is applied by the consumer's own code to a store in memory; every chain must end acked.

Said of each job: how long it took, and the CPU of all its processes; of the Python that drives it,
CPU by itself, as what is collected to the driver would show there; the most memory that the driver,
any one Python worker, and Java held; the bytes of the largest task, against those of all.

    python -m bench.spark_scale --json scale.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.spark_price import Peaks, applied, cpu_seconds, process_seconds, watched

_MIB = 1 << 20
_SMALL = 600
"""Bytes of a small file, about."""
CASES = {
    "one file of 1 GiB among 5,000 small ones": (1 << 30, 5_000),
    "100,000 small files": (0, 100_000),
}


def make_corpus(folder: Path, large: int, small: int) -> None:
    """Write one large file, if it has any bytes, and small ones; always the same.

    Args:
        folder: Where; made.
        large: Bytes of the large file.
        small: How many small files.
    """
    rng = random.Random(large + small)
    vocabulary = [
        "".join(rng.choices("etaoinshrdlucmfwyp", k=rng.randrange(2, 10))) for _ in range(20_000)
    ]
    text = " ".join(rng.choices(vocabulary, k=1_500_000)).encode()
    if large:
        folder.mkdir(parents=True)
        with (folder / "large.txt").open("wb") as file:
            for begin in range(0, large, len(text)):
                file.write(text[: large - begin])
    for number in range(small):
        place = folder / f"{number % 100:02}"
        place.mkdir(parents=True, exist_ok=True)
        begin = rng.randrange(len(text) - _SMALL)
        (place / f"{number:06}.txt").write_bytes(text[begin : begin + _SMALL])


class _Watch(Peaks):
    """Watches CPU too.

    Attributes:
        cpu: Of the tree of processes, seconds, when it was last looked at.
        driver_cpu: Of the driving Python alone.
    """

    def __init__(self, root: int) -> None:
        super().__init__(root)
        self.cpu = self.driver_cpu = 0.0

    def look(self) -> None:
        super().look()
        self.cpu = max(self.cpu, cpu_seconds(self.root))
        self.driver_cpu = max(self.driver_cpu, process_seconds(self.root)[0])


def run_job(name: str, *arguments: str) -> dict[str, Any]:
    """One job in a process of its own: its summary and what it took."""
    command = [sys.executable, "-m", f"pipeline.{name}", "--run-id", "bench", "--json", *arguments]
    begun = time.monotonic()
    printed, watch = watched(command, _Watch)
    return {
        "summary": json.loads(printed),
        "wall": time.monotonic() - begun,
        "cpu": watch.cpu,
        "driver_cpu": watch.driver_cpu,
        "java_mib": watch.java / _MIB,
        "worker_mib": watch.worker / _MIB,
        "driver_mib": watch.driver / _MIB,
    }


def run_case(large: int, small: int) -> dict[str, Any]:
    """Both jobs over one database.

    Raises:
        RuntimeError: A job failed, or a chain is not acked.
    """
    from pipeline.folder import list_files
    from pipeline.reading import encoding_named
    from pipeline.scan import tasks_of
    from tests.support.queue_server import QueueServer

    place = Path(tempfile.mkdtemp(prefix="xorack-scale-"))
    queue = QueueServer()
    try:
        make_corpus(place / "books", large, small)
        found = list(enumerate(list_files(str(place / "books"), "*", exclude=[], hidden=False)))
        tasks = tasks_of(found, encoding_named("UTF-8"), os.cpu_count() or 1)
        bytes_of = [sum(part.end - part.start for part in task) for task in tasks]
        words, to_queue = ["--words", str(place / "words")], ["--queue-url", queue.queue_url]
        jobs = {"split": run_job("split", "--database", str(place / "books"), *words, *to_queue)}
        jobs["count"] = run_job("count", *words, "--counts", str(place / "counts"), *to_queue)
        acked = applied(queue.bodies)
        files = len(found)
        if acked["statuses"] != {"acked": files} or (
            jobs["split"]["summary"]["words"] != jobs["count"]["summary"]["words"]
        ):
            raise RuntimeError(f"of {files:,} files not all are acked: {acked}, {jobs}")
        return {
            "files": files,
            "bytes": sum(bytes_of),
            "tasks": len(tasks),
            "largest_task_bytes": max(bytes_of),
            "jobs": jobs,
            "queue": acked,
        }
    finally:
        queue.stop()
        shutil.rmtree(place)


def table(results: dict[str, dict[str, Any]]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| | words | messages | writes a chain | tasks | largest task | job | wall s | CPU s "
        "| CPU s of the driver | driver MiB | one worker MiB | Java MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |" + " ---: |" * 6,
    ]
    for name, of in results.items():
        first = (
            f"| {name} | {of['jobs']['split']['summary']['words']:,} "
            f"| {of['queue']['messages']:,} | {of['queue']['writes_a_chain']:.2f} "
            f"| {of['tasks']} | {of['largest_task_bytes'] / of['bytes']:.1%} of the bytes "
        )
        for job, took in of["jobs"].items():
            lines.append(
                f"{first}| `{job}` | {took['wall']:.0f} | {took['cpu']:.0f} "
                f"| {took['driver_cpu']:.0f} | {took['driver_mib']:.0f} | {took['worker_mib']:.0f} "
                f"| {took['java_mib']:.0f} |"
            )
            first = "| " * 6
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--quick", action="store_true", help="a thousandth of the work")
    arguments = parser.parse_args()
    scale = 1000 if arguments.quick else 1
    results = {}
    for name, (large, small) in CASES.items():
        results[name] = run_case(large // scale, max(small // scale, 1))
        if arguments.json:
            arguments.json.write_text(json.dumps({"cases": results}, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
