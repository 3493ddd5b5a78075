"""The word count in a process of its own, on a cluster where tasks of ``split`` fail.

Each failure happens once: an executor is killed after its task handed over all its words, before
Spark knows; and a task hangs there, so a speculative copy overtakes it. Both times a file of the
task changes before it is read again. It keeps its size, as a new size would be an error. Files in
a folder record what already happened.

    python -m tests.support.cluster_pipeline MASTER DATABASE OUT QUEUE_URL FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from pipeline import count, scan, split
from tests.support.cluster_job import ONE_CORE_AND_SPECULATION, kill_executor, once
from tests.support.events import eventually

MISHAPS = {0: "killed", 2: "hung"}
"""Failures by task number."""
BEFORE, AFTER = "two", "t w"
"""The end of a file before and after its change: one more word in as many bytes."""


def stumbling(folder: Path, database: Path) -> Callable[..., Any]:
    """Wrap `pipeline.scan._scan_files`, which reads the files of a task, so that tasks fail."""
    original = scan._scan_files

    def scan_parts(parts: Iterable[Any], encoding: Any) -> Iterator[Any]:
        parts = list(parts)
        name = MISHAPS.get(TaskContext.get().partitionId())
        if name is None or not once(folder, name):
            # A copy that starts early must not read, and win with, the file as it was.
            assert name is None or eventually((folder / f"{name}-changed").exists)
            yield from original(parts, encoding)
            return
        yield from original(parts, encoding)
        file = database / parts[0][0]
        file.write_text(file.read_text().removesuffix(BEFORE) + AFTER)
        (folder / f"{name}-changed").touch()
        if name == "killed":
            kill_executor()
        time.sleep(120)  # Spark kills the overtaken task

    return scan_parts


def main(master: str, database: str, out: str, queue_url: str, place: str) -> int:
    given = [f"--conf {key}={value}" for key, value in ONE_CORE_AND_SPECULATION.items()]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*given, "pyspark-shell"])
    os.environ["SPARK_MASTER"] = master
    scan._TASK_BYTES = 2 * scan._FILE_COSTS  # two files a task
    scan._scan_files = stumbling(Path(place), Path(database))
    common = ["--queue-url", queue_url, "--run-id", "r", "--records", f"{out}/records"]
    words = ["--words", f"{out}/words"]
    return split.main(["--database", database, *words, *common]) or count.main(
        [*words, "--counts", f"{out}/counts", *common]
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
