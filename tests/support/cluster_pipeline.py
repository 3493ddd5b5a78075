"""The word count in a process of its own, on a cluster where tasks of ``split`` come to grief.

Each once: an executor is killed whose task has handed over all its words, before Spark knew; and a
task hangs there, so that a speculative copy of it overtakes it. Either way a file of the task's
changes before it is read again, and keeps its size: that would be noticed. Files in a folder say
what has happened already.

    python -m tests.support.cluster_pipeline MASTER DATABASE OUT QUEUE_URL FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from pipeline import count, scan, split
from tests.support.cluster_job import kill_executor, once

MISHAPS = {0: "killed", 2: "hung"}
"""By the number of the task."""
BEFORE, AFTER = "two", "t w"
"""What a changed file ends in: one word more in as many bytes."""


def stumbling(folder: Path) -> Callable[..., Any]:
    """`scan_words`, whose tasks come to grief."""
    original = scan.scan_words

    def scan_words(spark: Any, tasks: Any, *given: Any) -> Any:
        frame, all_said = original(spark, tasks, *given)
        first = [task[0].path for task in tasks]

        def stumble(batches: Iterator[Any]) -> Iterator[Any]:
            yield from batches
            number = TaskContext.get().partitionId()
            if number in MISHAPS and once(folder, MISHAPS[number]):
                file = Path(os.fsdecode(first[number]))
                file.write_text(file.read_text().removesuffix(BEFORE) + AFTER)
                if MISHAPS[number] == "killed":
                    kill_executor()
                time.sleep(120)  # a task that lost is killed

        return frame.mapInArrow(stumble, frame.schema), all_said

    return scan_words


def main(master: str, database: str, out: str, queue_url: str, place: str) -> int:
    settings = {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.quantile": "0.5",
    }
    given = [f"--conf {key}={value}" for key, value in settings.items()]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*given, "pyspark-shell"])
    os.environ["SPARK_MASTER"] = master
    scan._TASK_FILES = 2
    scan.scan_words = stumbling(Path(place))
    common = ["--queue-url", queue_url, "--run-id", "r"]
    words = ["--words", f"{out}/words"]
    return split.main(["--database", database, *words, *common]) or count.main(
        [*words, "--counts", f"{out}/counts", *common]
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
