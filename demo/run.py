"""The steps of the demo: set up, deploy, split, count, and wait for the end of every chain."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from demo.assembly import cached_template, synthesise
from demo.children import Children, interruptible
from demo.database import Database, copy_standard_library, open_database
from demo.errors import DemoFailed
from demo.lost_words import check_repair, end_chains, incomplete_chains
from demo.progress import ChainMonitor, Progress
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.local.deploy import Stack, Usage, deploy, subscribe, usage
from xorack.local.embedded import EmbeddedAWS
from xorack.local.java import JavaNotFound, java_home

__all__ = ["Options", "Result", "Screen", "UnackedChain", "demo"]

ROOT = Path(__file__).resolve().parents[1]
_MARK = "xorack-demo"
_OUTPUTS = ("words", "counts", "repaired", "database", "tmp")
_PATIENCE_SECONDS = 30.0
_COMMONEST = 10
# Settings of another Spark on this machine: the demo uses the one in its environment.
_OTHER_SPARK = ("HADOOP_", "PYSPARK_", "SPARK_", "_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")


@dataclass(frozen=True)
class Options:
    """The user's options.

    Attributes:
        folder: The database; None for the sources of Python's standard library.
        encoding: Encoding of its files.
        work: The folder for everything that the demo makes.
        port: Port of the embedded AWS; None for a free one.
        lose: Number of words that the count loses and the repair counts.
    """

    folder: Path | None = None
    encoding: str = "UTF-8"
    work: Path = ROOT / ".demo"
    port: int | None = None
    lose: int = 0


@dataclass(frozen=True)
class UnackedChain:
    """A chain that is not acked, and why."""

    tag: str
    status: str
    reason: str


@dataclass(frozen=True)
class Result:
    """The results of the demo.

    Attributes:
        files: Files in the database: a chain each.
        words: Counted words.
        distinct: Different words among them.
        uncounted: Words of readable files that were not counted: 0 if all went well.
        acked: Files whose chain, the first or the repair's, is acked with an event.
        unacked: The other chains.
        usage: Messages, invocations and writes.
        counts: The folder with the counts, in Parquet.
        commonest: The commonest words and their counts.
        seconds: Durations of ``set up``, ``split``, ``count``, ``repair``, and of ``all``.
        repair: Summary of the job that counted the lost words; None if it did not run.
    """

    files: int
    words: int
    distinct: int
    uncounted: int
    acked: int
    unacked: tuple[UnackedChain, ...]
    usage: Usage
    counts: Path
    commonest: tuple[tuple[str, int], ...]
    seconds: Mapping[str, float]
    repair: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether all files are acked and all of their words counted."""
        return not self.unacked and not self.uncounted


class Screen(Protocol):
    """The display of the progress; several threads call it."""

    def begin(self, step: str, doing: str) -> None:
        """Show that a step begins."""

    def end(self, step: str, done: str) -> None:
        """Show the result of a step."""

    def chains(self, progress: Progress, total: int) -> None:
        """Show the numbers of chains, of so many in total."""


def demo(options: Options, screen: Screen) -> Result:
    """Run the demo; chains that are not acked are part of its result.

    Raises:
        DemoFailed: The demo cannot run, or a job failed.
        LocalError: The embedded AWS failed.
        Interrupted: A signal stopped the demo. All of its processes have ended.
    """
    begun = time.monotonic()
    if options.folder is not None:
        open_database(options.folder)  # an error in it shows before anything slow begins
    with interruptible(), _work_folder(options.work) as work, Children() as children:
        return _Demo(options, work, screen, children, begun).run()


@contextmanager
def _work_folder(work: Path) -> Iterator[Path]:
    """Lock the demo's folder and remove an earlier demo's output."""
    work = Path(os.path.abspath(work))
    mark = work / _MARK
    try:
        if work.exists() and any(work.iterdir()) and not mark.exists():
            raise DemoFailed(f"{work} is not the demo's: it holds other things")
        work.mkdir(parents=True, exist_ok=True)
        with mark.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DemoFailed(f"another demo is running in {work}") from error
            for name in _OUTPUTS:
                shutil.rmtree(work / name, ignore_errors=True)
            (work / "tmp").mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work / "tmp", ignore_errors=True)
    except OSError as error:
        raise DemoFailed(f"{error.filename or work}: {error.strerror}") from error


class _Demo:
    """One run of the demo."""

    def __init__(
        self, options: Options, work: Path, screen: Screen, children: Children, begun: float
    ) -> None:
        self.options = options
        self.work = work
        self.screen = screen
        self.children = children
        self.begun = begun
        self.seconds: dict[str, float] = {}
        self.total = 0

    def run(self) -> Result:
        java = self._find_java()
        self.total = self._prepare_database().files
        python, template = self._install_and_synthesise()
        with EmbeddedAWS(self.options.port, python=python) as aws:
            self.stack = self._deploy(aws, template)
            self.environ = self._spark_environ(aws, java)
            self.store = DynamoDBStore(self.stack.table_name, client=self.stack.client("dynamodb"))
            events, sqs = subscribe(self.stack), self.stack.client("sqs")
            self.seconds["set up"] = time.monotonic() - self.begun
            with ChainMonitor(self.store, events, sqs, self._show) as monitor:
                split = self._split()
                self.total = monitor.expected = int(split["chains"])
                self._show(monitor.progress)
                count = self._count()
                repair = self._repair(monitor) if self.options.lose else None
                monitor.wait(_PATIENCE_SECONDS)
            return self._result(monitor, split, count, repair)

    def _show(self, progress: Progress) -> None:
        self.screen.chains(progress, max(self.total, progress.opened))

    def _find_java(self) -> Path:
        self.screen.begin("Java", "looking for one that runs Spark")
        try:
            home = java_home()
        except JavaNotFound as error:
            raise DemoFailed(str(error)) from error
        self.screen.end("Java", str(home))
        return home

    def _prepare_database(self) -> Database:
        self.screen.begin("database", "looking at its files")
        if self.options.folder is None:
            self.database = copy_standard_library(self.work / "database")
        else:
            self.database = open_database(self.options.folder)
        files, size = self.database.files, self.database.size / 1e6
        self.screen.end("database", f"{files:,} files, {size:.1f} MB: {self.database.description}")
        return self.database

    def _install_and_synthesise(self) -> tuple[Path, Path]:
        """Return the Python of the embedded AWS and the stack's template; make both at once."""
        # Children of their own, which end before the pool does: no thread waits for one.
        with ThreadPoolExecutor(2) as pool, Children() as children:
            python = pool.submit(self._install, children)
            template = pool.submit(self._synthesise, children)
            return python.result(), template.result()

    def _install(self, children: Children) -> Path:
        doing = "checking its environment (the first time: installing it, about a minute)"
        self.screen.begin("AWS", doing)
        output = children.run(
            [sys.executable, "-m", "xorack.local.environment"],
            cwd=ROOT,
            environ=os.environ,
            log=self.work / "environment.log",
        )
        return Path(output.splitlines()[-1])

    def _synthesise(self, children: Children) -> Path:
        self.screen.begin("stack", "synthesising it, some 10 to 60 s (once)")
        folder = self.work / "cdk"
        if template := cached_template(ROOT, folder):
            self.screen.end("stack", "synthesised before, its sources are unchanged")
            return template
        template = synthesise(ROOT, folder, children)
        self.screen.end("stack", "synthesised")
        return template

    def _deploy(self, aws: EmbeddedAWS, template: Path) -> Stack:
        self.screen.begin("AWS", "deploying the stack")
        stack = deploy(aws, template)
        count = len(json.loads(template.read_text())["Resources"])
        self.screen.end("AWS", f"{aws.endpoint_url}, stack {stack.name}: {count} resources")
        return stack

    def _spark_environ(self, aws: EmbeddedAWS, java: Path) -> dict[str, str]:
        inherited = {n: v for n, v in aws.environ().items() if not n.startswith(_OTHER_SPARK)}
        temporary = str(self.work / "tmp")
        return {
            **inherited,
            "JAVA_HOME": str(java),
            "SPARK_LOCAL_DIRS": temporary,
            "TMPDIR": temporary,
            "PYTHONUNBUFFERED": "1",
        }

    def _split(self) -> dict[str, Any]:
        options = {
            "database": self.database.folder,
            "encoding": self.options.encoding,
            "words": self.work / "words",
        }
        summary = self._run_job("split", "files to words", options)
        files, words = summary["files"], summary["words"]
        self._end_job("split", f"{files:,} files, {words:,} words")
        return summary

    def _count(self) -> dict[str, Any]:
        folders = ("words", "counts")
        options: dict[str, object] = {name: self.work / name for name in folders}
        but = ""
        if lose := self.options.lose:
            options["lose"] = lose
            but = f", but {lose:,} words"
        summary = self._run_job("count", f"words to counts{but}", options)
        self._end_job("count", f"{summary['distinct']:,} different words{but}")
        return summary

    def _repair(self, monitor: ChainMonitor) -> dict[str, Any] | None:
        """Fail the incomplete chains and count their words; return the job's summary."""
        words, counts = self.work / "words", self.work / "counts"
        tags = incomplete_chains(words, counts)
        if not tags:  # the database has no words
            return None
        hurt = f"{len(tags):,} hurt files"
        self.screen.begin("failed", f"awaiting all but {hurt}, then the sweeper")
        if not monitor.wait(_PATIENCE_SECONDS, self.total - len(tags)):
            raise DemoFailed(f"not all files but the {hurt} ended")
        acked = monitor.progress.acked
        end_chains(self.stack, self.store, tags, _PATIENCE_SECONDS)
        if not monitor.wait(_PATIENCE_SECONDS):
            raise DemoFailed(f"not all of the {hurt} have an event `failed`")
        events = [monitor.events[tag] for tag in tags]
        for event in events:
            if event["detail"]["status"] != "failed":
                tag = event["detail"]["tag"]
                raise DemoFailed(f"{tag} is acked, though words of it were not counted")
        units = sum(len(event["detail"].get("outstanding", ())) for event in events)
        self.screen.end(
            "failed",
            f"{len(tags):,} files, by their deadline; their events name {units:,} words"
            f" (the other files: {acked:,} acked)",
        )
        lines = [json.dumps(event) + "\n" for event in events]
        (self.work / "failed.jsonl").write_text("".join(lines))
        options = {
            "words": words,
            "counts": counts,
            "repaired": self.work / "repaired",
            "events": self.work / "failed.jsonl",
        }
        doing = "counting just the words that the failed files miss"
        summary = self._run_job("repair", doing, options)
        check_repair(summary, events)
        self.total += len(summary["repaired"])
        monitor.expected = self.total
        self._end_job("repair", f"{summary['missing']:,} words, {len(tags):,} new chains")
        return summary

    def _run_job(self, name: str, doing: str, options: Mapping[str, object]) -> dict[str, Any]:
        """Run a job of `pipeline` and return the summary that it prints."""
        self.screen.begin(name, doing)
        begun = time.monotonic()
        job = {**options, "queue-url": self.stack.queue_url, "run-id": "demo"}
        arguments = [f"--{option}={value}" for option, value in job.items()]
        output = self.children.run(
            [sys.executable, "-m", f"pipeline.{name}", *arguments, "--json"],
            cwd=ROOT,
            environ=self.environ,
            log=self.work / f"{name}.log",
        )
        self.seconds[name] = time.monotonic() - begun
        return dict(json.loads(output.splitlines()[-1]))

    def _end_job(self, name: str, done: str) -> None:
        self.screen.end(name, f"{done}: {self.seconds[name]:.1f} s")

    def _result(
        self,
        monitor: ChainMonitor,
        split: Mapping[str, Any],
        count: Mapping[str, Any],
        repair: Mapping[str, Any] | None,
    ) -> Result:
        chains = {chain.tag: chain for chain in self.store.scan()}
        repaired = {chain["repairs"] for chain in repair["repaired"]} if repair else set()
        final = repair or count
        # A repaired chain counts by its second attempt.
        unacked = [
            UnackedChain(tag, chain.status, reason)
            for tag, chain in sorted(chains.items())
            if tag not in repaired and (reason := _why_unacked(chain, tag in monitor.events))
        ]
        acked = len(chains) - len(repaired) - len(unacked)
        if lost := int(split["files"]) + len(repaired) - len(chains):
            unacked.append(UnackedChain(f"{lost} files", "missing", "have no chain in the table"))
        counts = self.work / ("repaired" if repaired else "counts")
        commonest = _commonest(counts)
        stack_usage = usage(self.stack)
        self.seconds["all"] = time.monotonic() - self.begun
        return Result(
            files=int(split["files"]),
            words=int(final["words"]),
            distinct=int(final["distinct"]),
            uncounted=int(split["words"]) - int(final["words"]),
            acked=acked,
            unacked=tuple(unacked),
            usage=stack_usage,
            counts=counts,
            commonest=commonest,
            seconds=self.seconds,
            repair=repair,
        )


def _why_unacked(chain: Chain, has_event: bool) -> str | None:
    """Return why a chain is not acked for its subscriber; None if it is."""
    if chain.status == "failed":
        return chain.reason or "failed"
    if chain.status != "acked":
        left = chain.started - chain.finished
        return f"{left:,} of {chain.started:,} units are outstanding"
    return None if has_event else "acked, but its event did not come"


def _commonest(counts: Path) -> tuple[tuple[str, int], ...]:
    """Return the commonest words; equally common ones by alphabet."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(counts)
    order = [("count", "descending"), ("word", "ascending")]
    first = table.take(pc.select_k_unstable(table, _COMMONEST, order))
    return tuple((str(row["word"]), int(row["count"])) for row in first.to_pylist())
