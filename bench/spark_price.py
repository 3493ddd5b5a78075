"""What tracking costs on Spark: the two jobs of `pipeline/`, tracked and not, run in turn.

Measured in two ways. *By itself*: a process for each run, a Java that has just started, the two
jobs of one variant once, nothing else; rounds take the variants in turn. Java compiles what it
runs, for each kind of query anew, which costs about as much as the work of some million words: this
is the price of a small job. *Warm*: one process does the jobs of all variants in turn, turn after
turn; the first turns, in which Java compiles, do not count. This is what the work costs: the price
that stays where there is more of it. Java's start and a first job of one row come before the clocks
start, and Java's garbage is collected before each job.

The machine's speed changes by half within minutes. So a run is compared with the untracked one of
the same turn or round, whose jobs run next to its own, and a ratio is the median of these.

Untracked is the same work by the same reading code without anything that tracking needs: a row has
a word and nothing more, no list of files is written, nothing is folded or sent. Tracked is
`pipeline.split` and `pipeline.count` as they are. All write Parquet with the same settings, and
their counts are compared.

CPU is that of the whole tree of processes from /proc: Java, the Python workers, and the Python that
drives them (it packs and sends). What comes to the queue is then applied by the consumer's own code
to a store in memory, and messages, writes and chains that are acked are counted.

    python -m bench.spark_price --words 1000000 4000000 --rounds 3 --json price.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ("untracked", "plain", "traced")
FILES = 200
VOCABULARY = 50_000
GOALS = {"plain": 1.10, "traced": 1.25}
WARM_UP = 2
"""Turns of a warm run that do not count."""
WARM_TURNS = 9
_TICK = os.sysconf("SC_CLK_TCK")
_MIB = 1 << 20


def make_corpus(folder: Path, words: int, files: int = FILES) -> None:
    """Write files of words whose frequencies fall as in prose; always the same ones.

    Args:
        folder: Where; made.
        words: How many words in all.
        files: In how many files, of sizes that differ by a factor of three.
    """
    rng = random.Random(words)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    vocabulary = [
        "".join(rng.choices(letters, range(26, 0, -1), k=2 + min(rng.randrange(12), 4 + at % 7)))
        for at in range(VOCABULARY)
    ]
    cumulated, total = [], 0.0
    for rank in range(VOCABULARY):
        total += 1 / (rank + 3)
        cumulated.append(total)
    shares = [1 + 2 * at / max(files - 1, 1) for at in range(files)]
    left, share_left = words, sum(shares)
    for at, share in enumerate(shares):
        count = round(left * share / share_left)
        left, share_left = left - count, share_left - share
        path = folder / f"{at % 10}" / f"file-{at:04}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        chosen = rng.choices(vocabulary, cum_weights=cumulated, k=count)
        lines = (" ".join(chosen[begin : begin + 12]) for begin in range(0, count, 12))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tree(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))):
            children.setdefault(int(stat[1]), []).append(int(entry))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; none if the process is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(root: int) -> float:
    """What a tree of processes has used so far; those that have ended and were waited for too."""
    return sum(sum(process_seconds(process)) for process in tree(root))


def process_seconds(process: int) -> tuple[float, float]:
    """What a process has used so far, and what those have that it started and waited for."""
    ticks = [int(field) for field in _stat(process)[11:15]]
    return sum(ticks[:2]) / _TICK, sum(ticks[2:]) / _TICK


class Peaks(threading.Thread):
    """Watches the memory of a tree of processes, from outside of it.

    Attributes:
        java: The most that Java held, bytes (of VmHWM).
        worker: The most that any one Python worker held.
        driver: The most that the driving Python held.
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.java = self.worker = self.driver = 0
        self.root = root
        self._over = threading.Event()

    def run(self) -> None:
        """Look four times a second."""
        while not self._over.wait(0.25):
            self.look()

    def look(self) -> None:
        """Look at all processes."""
        for process in tree(self.root):
            self._look_at(process)

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()
        self.join()

    def _look_at(self, process: int) -> None:
        try:
            status = Path(f"/proc/{process}/status").read_text()
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            return
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        high = int(lines.get("VmHWM", "0 kB").split()[0]) << 10
        if process == self.root:
            self.driver = max(self.driver, high)
        elif lines["Name"].strip() == "java":
            self.java = max(self.java, high)
        elif b"pyspark.daemon" in command:
            self.worker = max(self.worker, high)


Watch = TypeVar("Watch", bound=Peaks)


# One run, in a process of its own


def run_once(arguments: argparse.Namespace) -> None:
    """Do both jobs of some variants, some times, and print what they took, as JSON."""
    from pipeline.session import prepare, session

    prepare()
    database, out = Path(arguments.database), Path(arguments.out)
    size = sum(path.stat().st_size for path in database.rglob("*.txt"))
    spark = session("xorack bench", input_bytes=size)
    spark.range(1).count()
    variants, turns = arguments.run.split(","), []
    taken: dict[str, Any] = {"turns": turns, "counts": []}
    for turn in range(arguments.turns):
        timed: dict[str, Any] = {variant: {} for variant in variants}
        for name in ("split", "count"):
            for at in range(len(variants)):
                variant = variants[(at + turn) % len(variants)]
                place = out / f"{variant}-{turn}"
                job = _job(spark, name, variant, database, place, arguments.queue_url)
                spark._jvm.System.gc()
                wall, cpu = time.monotonic(), cpu_seconds(os.getpid())
                job()
                timed[variant][name] = {
                    "wall": time.monotonic() - wall,
                    "cpu": cpu_seconds(os.getpid()) - cpu,
                }
        for variant in variants:
            place = out / f"{variant}-{turn}"
            if turn == 0:
                rows = spark.read.parquet(str(place / "counts")).selectExpr(
                    "sum(count)", "count(1)", "bit_xor(xxhash64(word, count))"
                )
                taken["counts"].append(list(rows.first() or ()))
                words = (place / "words").rglob("*.parquet")
                taken["bytes_of_words"] = sum(p.stat().st_size for p in words)
            shutil.rmtree(place)
        turns.append(timed)
    print(json.dumps(taken))
    sys.stdout.flush()
    time.sleep(0.6)  # for the one who watches the memory
    spark.stop()


def _job(
    spark: Any, name: str, variant: str, database: Path, out: Path, queue_url: str
) -> Callable[[], Any]:
    if variant == "untracked":
        if name == "split":
            return lambda: untracked_split(spark, database, out / "words")
        return lambda: untracked_count(spark, out / "words", out / "counts")
    from pipeline import count, split

    common = ["--words", str(out / "words"), "--queue-url", queue_url, "--run-id", "bench"]
    if name == "split":
        given = ["--database", str(database), "--name", out.name, "--stamps", variant, *common]
        return lambda: split.split(split.parser().parse_args(given))
    given = ["--counts", str(out / "counts"), *common]
    return lambda: count.count(count.parser().parse_args(given))


def untracked_split(spark: Any, database: Path, out: Path) -> None:
    """Files to words, as somebody writes it who does not track: the words and nothing else."""
    from pipeline.folder import list_files, opened
    from pipeline.reading import encoding_named, read_words
    from pipeline.scan import tasks_of

    encoding = encoding_named("UTF-8")
    found = list_files(str(database), "*", exclude=[], hidden=False)
    files = list(enumerate(found))
    tasks = tasks_of(files, encoding, spark.sparkContext.defaultParallelism)

    def scan(batches: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        gathered: list[Any] = []
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in tasks[number]:
                    with opened(part.path, part.size) as file:
                        for _, text in read_words(file, part.start, part.end, part.size, encoding):
                            whole = pa.array([text], pa.binary()).cast(pa.string())
                            gathered.append(pc.split_pattern(whole, " ").flatten())
                            if sum(map(len, gathered)) >= 1 << 16:
                                yield pa.RecordBatch.from_arrays(
                                    [pa.concat_arrays(gathered)], ["word"]
                                )
                                gathered = []
        if gathered:
            yield pa.RecordBatch.from_arrays([pa.concat_arrays(gathered)], ["word"])

    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    (
        numbers.mapInArrow(scan, "word string")
        .write.option("parquet.writer.version", "v2")
        .parquet(str(out))
    )


def untracked_count(spark: Any, words: Path, out: Path) -> None:
    """Words to counts."""
    frame = spark.read.schema("word string").parquet(str(words))
    frame.groupBy("word").count().write.parquet(str(out))


# All runs


def watched(command: list[str], watch: type[Watch]) -> tuple[str, Watch]:
    """Run a process that sends to a queue of the bench's, and watch it.

    Args:
        command: The process.
        watch: How it is watched.

    Returns:
        What it printed, and the watch.

    Raises:
        RuntimeError: It failed.
    """
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        watching = watch(process.pid)
        watching.start()
        printed, _ = process.communicate()
        watching.stop()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return printed, watching


def measure(
    variants: tuple[str, ...], database: Path, queue: Any, turns: int = 1
) -> dict[str, Any]:
    """One process that does the jobs of some variants, some times."""
    out = Path(tempfile.mkdtemp(prefix="xorack-price-"))
    begun = len(queue.bodies)
    command = [sys.executable, "-m", "bench.spark_price", "--run", ",".join(variants)]
    command += ["--turns", str(turns)]
    command += ["--database", str(database), "--out", str(out), "--queue-url", queue.queue_url]
    try:
        printed, peaks = watched(command, Peaks)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    taken: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    taken["java"], taken["worker"], taken["driver"] = peaks.java, peaks.worker, peaks.driver
    taken["bodies"] = queue.bodies[begun:]
    return taken


def applied(bodies: list[str]) -> dict[str, Any]:
    """Let the consumer's code apply messages, ten at a time, and count what it did.

    Ten is what Lambda hands over where nothing is gathered: the default settings gather more, and
    write less.
    """
    from tests.support.fakes import FakeBus, FakeDeadLetters
    from tests.support.services import Message, consume
    from xorack.acker.memory_store import MemoryStore

    store, writes, requests = MemoryStore(), 0, 0
    for begin in range(0, len(bodies), 10):
        batch = [
            Message(str(begin + at), body) for at, body in enumerate(bodies[begin : begin + 10])
        ]
        done = consume(batch, store, FakeBus(), FakeDeadLetters())
        writes += done.stats.writes
        requests += sum(done.outcomes.values())
    statuses = Counter(str(chain.status) for chain in store.chains.values())
    return {
        "messages": len(bodies),
        "bytes": sum(map(len, bodies)),
        "requests": requests,
        "chains": len(store.chains),
        "statuses": dict(statuses),
        "writes": writes,
        "writes_a_chain": writes / max(len(store.chains), 1),
    }


def bench_size(words: int, rounds: int, warm_turns: int) -> dict[str, Any]:
    """All variants over one corpus, in turn: by themselves, then warm."""
    from tests.support.queue_server import QueueServer

    queue = QueueServer()
    corpus = Path(tempfile.mkdtemp(prefix="xorack-corpus-"))
    try:
        make_corpus(corpus / "books", words)
        runs: dict[str, list[dict[str, Any]]] = {variant: [] for variant in VARIANTS}
        for number in range(rounds):
            for variant in VARIANTS[number % 3 :] + VARIANTS[: number % 3]:
                taken = measure((variant,), corpus / "books", queue)
                runs[variant].append(taken)
                _tell(words, f"round {number + 1}", taken["turns"][0])
        warm = measure(VARIANTS, corpus / "books", queue, WARM_UP + warm_turns)
        for number, turn in enumerate(warm["turns"]):
            _tell(words, f"warm {number - WARM_UP + 1}" if number >= WARM_UP else "warming", turn)
        counts = [warm["counts"], *(taken["counts"] for of in runs.values() for taken in of)]
        results = {tuple(counted) for of in counts for counted in of}
        if len(results) != 1 or next(iter(results))[0] != words:
            raise RuntimeError(f"the variants do not count the same: {results}")
        figures = _figures(runs, warm["turns"][WARM_UP:])
        return {"words": words, "rounds": rounds, "warm_turns": warm_turns, **figures}
    finally:
        queue.stop()
        shutil.rmtree(corpus)


def _tell(words: int, when: str, turn: dict[str, Any]) -> None:
    for variant, jobs in turn.items():
        print(
            f"  {words:,} words, {when}, {variant}: {_total(jobs, 'wall'):.1f} s, "
            f"CPU {_total(jobs, 'cpu'):.1f} s, load {os.getloadavg()[0]:.1f}",
            file=sys.stderr,
        )


def _total(jobs: dict[str, Any], what: str) -> float:
    return float(jobs["split"][what] + jobs["count"][what])


def _figures(
    runs: dict[str, list[dict[str, Any]]], warm_turns: list[dict[str, Any]]
) -> dict[str, Any]:
    """Medians, and the medians of the ratios to the untracked run of the same round or turn."""
    figures: dict[str, Any] = {}
    for variant, of in runs.items():
        mine: dict[str, Any] = {}
        alone = [taken["turns"][0][variant] for taken in of]
        for before, turns in (("", alone), ("warm_", [turn[variant] for turn in warm_turns])):
            for what in ("wall", "cpu"):
                for job in ("split", "count"):
                    mine[f"{before}{job}_{what}_of_all"] = [jobs[job][what] for jobs in turns]
                mine[f"{before}{what}_of_all"] = [_total(jobs, what) for jobs in turns]
        for what in ("java", "worker", "driver"):
            mine[f"{what}_mib"] = median(taken[what] for taken in of) / _MIB
        mine["words_mib"] = of[0]["bytes_of_words"] / _MIB
        if variant != "untracked":
            mine["queue"] = applied(of[0]["bodies"])
            acked = mine["queue"]["statuses"].get("acked", 0)
            if acked != FILES:
                raise RuntimeError(f"{variant}: {mine['queue']}")
        figures[variant] = mine
    base = figures["untracked"]
    for mine in figures.values():
        for what in [key.removesuffix("_of_all") for key in mine if key.endswith("_of_all")]:
            all_mine, all_base = mine[f"{what}_of_all"], base[f"{what}_of_all"]
            mine[what] = median(all_mine)
            ratios = [one / other for one, other in zip(all_mine, all_base, strict=True)]
            mine[f"{what}_ratio"], mine[f"{what}_ratios"] = median(ratios), sorted(ratios)
        for what in ("java_mib", "worker_mib", "driver_mib"):
            mine[f"{what}_ratio"] = mine[what] / base[what]
    return {"variants": figures}


def table(results: list[dict[str, Any]]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| words | variant | CPU s, warm | ratio | split | count | wall | CPU s, by itself | ratio "
        "| wall | Java MiB | one worker MiB | driver MiB | words' Parquet MiB | messages "
        "| writes a chain |",
        "| ---: | --- |" + " ---: |" * 14,
    ]
    for result in results:
        for variant, of in result["variants"].items():
            queue = of.get("queue")
            lines.append(
                f"| {result['words']:,} | {variant} | {of['warm_cpu']:.1f} "
                f"| {of['warm_cpu_ratio']:.2f} | {of['warm_split_cpu_ratio']:.2f} "
                f"| {of['warm_count_cpu_ratio']:.2f} | {of['warm_wall_ratio']:.2f} "
                f"| {of['cpu']:.1f} | {of['cpu_ratio']:.2f} | {of['wall_ratio']:.2f} "
                f"| {of['java_mib']:.0f} | {of['worker_mib']:.0f} | {of['driver_mib']:.0f} "
                f"| {of['words_mib']:.1f} "
                f"| {queue['messages'] if queue else '-'} "
                f"| {format(queue['writes_a_chain'], '.2f') if queue else '-'} |"
            )
    largest = results[-1]
    for variant, goal in GOALS.items():
        for what, when in (("warm_cpu_ratio", "warm"), ("cpu_ratio", "by itself")):
            ratio = largest["variants"][variant][what]
            ratios = largest["variants"][variant][f"{what}s"]
            lines.append(
                f"\n{variant} at {largest['words']:,} words, {when}: {ratio:.2f} times the CPU "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f}); "
                f"the goal at 16,000,000 is at most {goal:.2f}: "
                + ("met." if ratio <= goal else f"missed by {ratio - goal:.2f}.")
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--words", nargs="+", type=int, default=[1_000_000, 4_000_000, 16_000_000])
    parser.add_argument("--rounds", type=int, default=3, help="of which medians are taken")
    parser.add_argument(
        "--warm-turns", type=int, default=WARM_TURNS, help="of which medians are taken, warm"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--turns", type=int, default=1, help=argparse.SUPPRESS)
    for hidden in ("run", "database", "out", "queue-url"):
        parser.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_once(arguments)
        return
    results = []
    for words in sorted(arguments.words):
        results.append(bench_size(words, arguments.rounds, arguments.warm_turns))
        if arguments.json:
            known = {"cores": os.cpu_count(), "files": FILES, "results": results}
            arguments.json.write_text(json.dumps(known, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
