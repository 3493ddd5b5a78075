"""CPU of tracking on Spark: the two jobs of `pipeline/`, tracked and untracked, run in turn.

*By itself*: each run is a process with a new Java that runs the two jobs once. *Warm*: one process
runs the jobs of all variants in turn; the first turns, in which Java compiles, are not counted.
CPU is that of the tree of processes, from /proc, without Java's start. The consumer's own code
applies the messages that were sent to a store in memory.

    python -m bench.spark '{"variants": ["plain"], ...}'    the arguments of `run_turns`
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import Figures, Goal, Plot, Section, Table, interleaved, run_process

VARIANTS = ("untracked", "plain", "traced")
WORDS = (1_000_000, 4_000_000, 16_000_000)
GOALS = {"plain": 1.10, "traced": 1.25}
FILES = 200
WARM_UP = 2
"""Turns of a warm run that are not counted."""
_TICK = os.sysconf("SC_CLK_TCK")


def make_corpus(folder: Path, words: int) -> None:
    """Write files of different sizes whose word frequencies resemble prose's; the seed is fixed."""
    rng = random.Random(words)
    lengths = [2 + rng.randrange(10) for _ in range(50_000)]
    vocabulary = ["".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=k)) for k in lengths]
    text = rng.choices(vocabulary, [1 / (rank + 3) for rank in range(len(vocabulary))], k=words)
    bounds = [round(words * (at / FILES + (at / FILES) ** 2) / 2) for at in range(FILES + 1)]
    for at in range(FILES):
        path = folder / f"{at % 10}" / f"file-{at:04}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        begins = range(bounds[at], bounds[at + 1], 12)
        lines = (" ".join(text[begin : min(begin + 12, bounds[at + 1])]) for begin in begins)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def cpu_seconds(root: int) -> float:
    """Sum up the CPU of a tree of processes, and of the ended ones that they waited for."""
    parents, ticks = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process ended
            continue
        parents[int(entry)], ticks[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {root}
    while more := {process for process, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(ticks.get(process, 0) for process in tree) / _TICK


def run_turns(
    variants: list[str], turns: int, database: str, out: str, queue_url: str
) -> dict[str, Any]:
    """Run both jobs of some variants, turn after turn; return seconds, and checksums of counts."""
    from pipeline.session import prepare, session

    prepare()
    size = sum(path.stat().st_size for path in Path(database).rglob("*.txt"))
    spark: Any = session("xorack bench", input_bytes=size)
    spark.range(1).count()
    counts: list[list[int]] = []
    numbers = itertools.count()

    def run(variant: str) -> dict[str, float]:
        place = Path(out, f"{variant}-{next(numbers)}")
        spark._jvm.System.gc()
        wall, cpu = time.monotonic(), cpu_seconds(os.getpid())
        if variant == "untracked":
            run_untracked(spark, database, place)
        else:
            run_tracked(variant, database, place, queue_url)
        seconds = {"wall": time.monotonic() - wall, "cpu": cpu_seconds(os.getpid()) - cpu}
        if len(counts) < len(variants):
            rows = spark.read.parquet(str(place / "counts"))
            checksum = ("sum(count)", "count(1)", "bit_xor(xxhash64(word, count))")
            counts.append(list(rows.selectExpr(*checksum).first() or ()))
        shutil.rmtree(place)
        return seconds

    of_turns = interleaved({variant: partial(run, variant) for variant in variants}, turns)
    spark.stop()
    return {"turns": of_turns, "counts": counts}


def run_tracked(stamps: str, database: str, out: Path, queue_url: str) -> None:
    """Run both jobs as they are."""
    from pipeline import count, split

    common = ["--words", str(out / "words"), "--queue-url", queue_url, "--run-id", "bench"]
    given = ["--database", database, "--name", out.name, "--stamps", stamps]
    split.split(split.parser().parse_args([*common, *given]))
    count.count(count.parser().parse_args([*common, "--counts", str(out / "counts")]))


def run_untracked(spark: Any, database: str, out: Path) -> None:
    """Count words with the same reading code and nothing else; a row is a word."""
    from pipeline.folder import list_files, opened
    from pipeline.reading import encoding_named, read_words
    from pipeline.scan import tasks_of

    encoding = encoding_named("UTF-8")
    files = enumerate(list_files(database, "*", exclude=[], hidden=False))
    tasks = tasks_of(list(files), encoding, spark.sparkContext.defaultParallelism)

    def scan(batches: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for part in tasks[number]:
                with opened(part.path, part.size) as file:
                    for _, text in read_words(file, part.start, part.end, part.size, encoding):
                        whole = pa.array([text], pa.binary()).cast(pa.string())
                        words = pc.split_pattern(whole, " ").flatten()
                        yield pa.RecordBatch.from_arrays([words], ["word"])

    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    written = numbers.mapInArrow(scan, "word string").write
    written.option("parquet.writer.version", "v2").parquet(str(out / "words"))
    words = spark.read.schema("word string").parquet(str(out / "words"))
    words.groupBy("word").count().write.parquet(str(out / "counts"))


def run_variants(variants: Sequence[str], turns: int, database: Path, queue: Any) -> dict[str, Any]:
    """Run `run_turns` in a process of its own; add the messages that it sent."""
    sent = len(queue.bodies)
    credentials = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    environment = {**os.environ, **credentials, "AWS_DEFAULT_REGION": "eu-west-1"}
    options = {"variants": variants, "turns": turns, "queue_url": queue.queue_url}
    with tempfile.TemporaryDirectory(prefix="xorack-bench-") as out:
        options |= {"database": str(database), "out": out}
        command = [sys.executable, "-m", "bench.spark", json.dumps(options)]
        printed = run_process(command, env=environment)
    result: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return result | {"bodies": queue.bodies[sent:]}


def apply_messages(bodies: list[str]) -> dict[str, Any]:
    """Apply messages, ten a batch, and count writes and chains."""
    from tests.support.fakes import FakeBus, FakeDeadLetters
    from tests.support.services import Message, consume
    from xorack.acker.memory_store import MemoryStore

    store, writes = MemoryStore(), 0
    for begin in range(0, len(bodies), 10):
        batch = [Message(str(at), body) for at, body in enumerate(bodies[begin : begin + 10])]
        writes += consume(batch, store, FakeBus(), FakeDeadLetters()).stats.writes
    statuses = Counter(str(chain.status) for chain in store.chains.values())
    if statuses != {"acked": FILES}:
        raise RuntimeError(f"expected {FILES} acked chains: {statuses}")
    return {"messages": len(bodies), "writes_a_chain": writes / FILES}


def measure_corpus(words: int, rounds: int, warm_turns: int) -> dict[str, Any]:
    """Run all variants over one corpus: by themselves, then warm.

    Raises:
        RuntimeError: The variants count differently, or a chain is not acked.
    """
    from tests.support.queue_server import QueueServer

    queue = QueueServer()
    with ExitStack() as stack:
        stack.callback(queue.stop)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xorack-corpus-")))
        make_corpus(folder, words)
        runs = interleaved(
            {of: partial(run_variants, [of], 1, folder, queue) for of in VARIANTS}, rounds
        )
        warm = run_variants(VARIANTS, WARM_UP + warm_turns, folder, queue)
    results = [warm, *(run for of in runs.values() for run in of)]
    counts = {tuple(counted) for result in results for counted in result["counts"]}
    if len(counts) != 1 or next(iter(counts))[0] != words:
        raise RuntimeError(f"the variants count differently: {counts}")
    variants: Figures = {}
    for variant, alone in runs.items():
        variants[variant] = {
            "alone": [run["turns"][variant][0] for run in alone],
            "warm": warm["turns"][variant][WARM_UP:],
        }
        if variant != "untracked":
            variants[variant]["queue"] = apply_messages(alone[0]["bodies"])
    return {"words": words, "variants": variants}


def measure(quick: bool) -> Figures:
    """Measure corpora of growing size."""
    words, rounds, warm_turns = ((100_000,), 1, 1) if quick else (WORDS, 3, 9)
    results = [measure_corpus(number, rounds, warm_turns) for number in words]
    return {"cores": os.cpu_count(), "files": FILES, "results": results}


def ratios(variants: Figures, variant: str, how: str, what: str) -> list[float]:
    """Divide a variant's seconds by the untracked ones of the same round or turn; sort."""
    pairs = zip(variants[variant][how], variants["untracked"][how], strict=True)
    return sorted(one[what] / base[what] for one, base in pairs)


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(
        ["words", "variant", "CPU s, warm", "ratio", "wall", "CPU s, by itself", "ratio", "wall",
         "messages", "writes a chain"],
    )  # fmt: skip
    ways = {"warm": "warm", "alone": "by itself"}
    series: dict[str, dict[str, float]] = defaultdict(dict)
    for result in figures["results"]:
        words, variants = f"{result['words']:,}", result["variants"]
        for variant, of in variants.items():
            cells = []
            for way, when in ways.items():
                cpu, wall = (median(ratios(variants, variant, way, it)) for it in ("cpu", "wall"))
                cells += [median(turn["cpu"] for turn in of[way]), cpu, wall]
                if variant in GOALS:
                    series[f"{variant}, {when}"][f"{words} words"] = cpu
            queue = of.get("queue", {})
            table.add(words, variant, *cells, queue.get("messages"), queue.get("writes_a_chain"))
    goals = []
    for variant, bound in GOALS.items():
        for way, when in ways.items():
            found = ratios(variants, variant, way, "cpu")
            what = f"{variant}, {words} words, {when} ({found[0]:.2f} to {found[-1]:.2f})"
            goals.append(Goal(what, median(found), bound, "less"))
    text = "CPU on Spark compared with untracked"
    axes = {"ylabel": "CPU, times the untracked jobs'"}
    return Section(
        "On Spark",
        "The two jobs of [pipeline/](../pipeline), tracked and untracked, in turn; ratios are "
        "medians, of tracked to untracked. *Warm*: turn after turn in one process. *By itself*: "
        f"each run a new process. {figures['files']} files. "
        "[benchmarks-spark.md](benchmarks-spark.md) explains the results.",
        [table],
        goals,
        Plot(text, "groups", series, 3.2, axes),
    )


if __name__ == "__main__":
    print(json.dumps(run_turns(**json.loads(sys.argv[1]))))
