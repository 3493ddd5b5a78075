"""The order of the demo: set up, deploy, split, count, and see every chain to its end."""

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

from demo.assembly import Assembly
from demo.children import Children, interruptible
from demo.database import Database, gather_python, user_database
from demo.errors import DemoFailed
from demo.losing import Repair, end_now, hurt_chains, write_events
from demo.watching import Ended, Seen, Watcher
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.local.deploy import Stack, deploy, subscribe, usage
from xorack.local.embedded import EmbeddedAWS
from xorack.local.java import JavaNotFound, java_home

__all__ = ["Options", "Result", "Screen", "Unacked", "demo"]

ROOT = Path(__file__).resolve().parents[1]
_MARK = "xorack-demo"
_LEAVINGS = ("words", "counts", "repaired", "database", "tmp")
_PATIENCE_SECONDS = 30.0
_COMMONEST = 10
# What a machine may say of a Spark of its own: the demo's is the one in its environment.
_OTHER_SPARK = ("HADOOP_", "PYSPARK_", "SPARK_", "_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")


@dataclass(frozen=True)
class Options:
    """What the user asks for.

    Attributes:
        folder: The database; None: the sources of Python's standard library.
        encoding: Of its files.
        work: Where all that the demo makes lies.
        port: The embedded AWS's; None: a free one.
        lose: How many words the counting loses; they are repaired then.
    """

    folder: Path | None = None
    encoding: str = "UTF-8"
    work: Path = ROOT / ".demo"
    port: int | None = None
    lose: int = 0


@dataclass(frozen=True)
class Unacked:
    """A chain that is not acked.

    Attributes:
        tag: The chain.
        status: Its status.
        why: The reason, in words.
    """

    tag: str
    status: str
    why: str


@dataclass(frozen=True)
class Result:
    """What the demo found.

    Attributes:
        database: What was read.
        files: Files in it: a chain each.
        words: Words that were counted.
        distinct: Different ones among them.
        acked: Files whose chain is acked, the first or that of the repair, and whose event came.
        unacked: The other chains.
        messages: SQS messages with stamps.
        invocations: Lambda invocations, the sweeper's included.
        errors: Those that failed.
        writes: Items written to DynamoDB.
        counts: The folder with the counts, in Parquet.
        commonest: The commonest words, and how often they come.
        seconds: What took how long: ``set up``, ``split``, ``count``; the whole is ``all``.
        repair: What was done about lost words; None where none were to be lost.
        uncounted: Words of readable files less those counted: 0 where the counts are right.
    """

    database: Database
    files: int
    words: int
    distinct: int
    acked: int
    unacked: tuple[Unacked, ...]
    messages: int
    invocations: int
    errors: int
    writes: int
    counts: Path
    commonest: tuple[tuple[str, int], ...]
    seconds: Mapping[str, float]
    repair: Repair | None = None
    uncounted: int = 0

    @property
    def ok(self) -> bool:
        """Whether all files were acked, and all their words counted."""
        return not self.unacked and not self.uncounted


class Screen(Protocol):
    """Where progress is shown. Called from several threads."""

    def begin(self, step: str, doing: str) -> None:
        """A step begins.

        Args:
            step: Its name.
            doing: What is being done.
        """

    def end(self, step: str, done: str) -> None:
        """A step ended well.

        Args:
            step: Its name.
            done: What came of it.
        """

    def chains(self, seen: Seen, total: int) -> None:
        """Chains were opened, or ended.

        Args:
            seen: How many now.
            total: How many there will be.
        """


def demo(options: Options, screen: Screen) -> Result:
    """Run the demo.

    Args:
        options: What the user asks for.
        screen: Where progress is shown.

    Returns:
        What was found. Chains that were not acked are no error here.

    Raises:
        DemoFailed: It cannot be run, or a job failed.
        LocalError: The embedded AWS.
        Interrupted: It was asked to stop. All that it started has ended then.
    """
    begun = time.monotonic()
    if not (ROOT / "pipeline").is_dir() or not (ROOT / "infra").is_dir():
        raise DemoFailed(
            f"the demo needs a checkout of the repository: infra/ and pipeline/ are not in {ROOT}"
        )
    if options.folder is not None:
        user_database(options.folder)  # a mistake in it is told before anything slow begins
    with interruptible(), _work_folder(options.work) as work:
        return _Demo(options, work, screen, begun).run()


@contextmanager
def _work_folder(work: Path) -> Iterator[Path]:
    """The demo's folder, its own alone, without what an earlier one left."""
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
            for name in _LEAVINGS:
                shutil.rmtree(work / name, ignore_errors=True)
            (work / "tmp").mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work / "tmp", ignore_errors=True)
    except OSError as error:
        raise DemoFailed(f"{error.filename or work}: {error.strerror}") from error


class _Demo:
    """One run of it."""

    def __init__(self, options: Options, work: Path, screen: Screen, begun: float) -> None:
        self.options = options
        self.work = work
        self.screen = screen
        self.begun = begun
        self.seconds: dict[str, float] = {}
        self.total = 0

    def run(self) -> Result:
        with Children() as children:
            java = self._java()
            database = self._database()
            self.total = database.files
            python, template = self._set_up()
            with EmbeddedAWS(self.options.port, python=python) as aws:
                stack = self._deploy(aws, template)
                store = DynamoDBStore(stack.table_name, client=stack.client("dynamodb"))
                events = subscribe(stack)
                self.seconds["set up"] = time.monotonic() - self.begun
                environ = self._environ(aws, java)
                with Watcher(store, events, stack.client("sqs"), self._tell) as watcher:
                    split = self._split(children, stack, database, environ)
                    self.total = int(split["chains"])
                    watcher.expect(self.total)
                    self._tell(watcher.seen)
                    count = self._count(children, stack, environ)
                    repair = None
                    if self.options.lose:
                        count, repair = self._repair(
                            children, stack, store, watcher, count, environ
                        )
                    watcher.wait(_PATIENCE_SECONDS)
                return self._result(database, stack, store, watcher, split, count, repair)

    def _tell(self, seen: Seen) -> None:
        self.screen.chains(seen, max(self.total, seen.opened))

    def _java(self) -> Path:
        self.screen.begin("Java", "looking for one that runs Spark")
        try:
            home = java_home()
        except JavaNotFound as error:
            raise DemoFailed(str(error)) from error
        self.screen.end("Java", str(home))
        return home

    def _database(self) -> Database:
        self.screen.begin("database", "looking at its files")
        if self.options.folder is not None:
            database = user_database(self.options.folder)
        else:
            database = gather_python(self.work / "database")
        self.screen.end(
            "database", f"{database.files:,} files, {database.size / 1e6:.1f} MB: {database.what}"
        )
        return database

    def _set_up(self) -> tuple[Path, Path]:
        """The embedded AWS's environment and the stack's template, both at once."""
        assembly = Assembly(ROOT, self.work / "cdk")

        def synthesised(children: Children) -> Path:
            if template := assembly.template:
                self.screen.begin("stack", "synthesised before")
                self.screen.end("stack", "synthesised before, its sources are unchanged")
                return template
            self.screen.begin("stack", "synthesising it, some 10 to 60 s (once)")
            made = assembly.synthesise(children)
            self.screen.end("stack", "synthesised")
            return made

        def environment(children: Children) -> Path:
            self.screen.begin(
                "AWS", "checking its environment (the first time: installing it, about a minute)"
            )
            told = children.run(
                [sys.executable, "-m", "xorack.local.environment"],
                cwd=ROOT,
                environ=os.environ,
                log=self.work / "environment.log",
            )
            return Path(told.splitlines()[-1])

        # Children of their own, which end before the pool does: no thread is left waiting for one.
        with ThreadPoolExecutor(2) as pool, Children() as children:
            both = pool.submit(environment, children), pool.submit(synthesised, children)
            python, template = (one.result() for one in both)
        return python, template

    def _deploy(self, aws: EmbeddedAWS, template: Path) -> Stack:
        self.screen.begin("AWS", "deploying the stack")
        stack = deploy(aws, template)
        count = len(json.loads(template.read_text())["Resources"])
        self.screen.end("AWS", f"{aws.endpoint_url}, stack {stack.name}: {count} resources")
        return stack

    def _environ(self, aws: EmbeddedAWS, java: Path) -> dict[str, str]:
        """Where the jobs run: the embedded AWS, this Java, our folder, and no other Spark."""
        clean = {
            name: value
            for name, value in aws.environ().items()
            if not name.startswith(_OTHER_SPARK)
        }
        return {
            **clean,
            "JAVA_HOME": str(java),
            "SPARK_LOCAL_DIRS": str(self.work / "tmp"),
            "TMPDIR": str(self.work / "tmp"),
            "PYTHONUNBUFFERED": "1",
        }

    def _split(
        self, children: Children, stack: Stack, database: Database, environ: Mapping[str, str]
    ) -> dict[str, Any]:
        arguments = [
            f"--database={database.folder}",
            f"--encoding={self.options.encoding}",
            f"--words={self.work / 'words'}",
        ]
        summary = self._job("split", "files to words", arguments, children, stack, environ)
        self.screen.end(
            "split",
            f"{summary['files']:,} files, {summary['words']:,} words: {self._took('split')}",
        )
        return summary

    def _count(
        self, children: Children, stack: Stack, environ: Mapping[str, str]
    ) -> dict[str, Any]:
        arguments = [f"--words={self.work / 'words'}", f"--counts={self.work / 'counts'}"]
        losing = ""
        if self.options.lose:
            arguments.append(f"--lose={self.options.lose}")
            losing = f", but {self.options.lose:,} words"
        summary = self._job(
            "count", f"words to counts{losing}", arguments, children, stack, environ
        )
        self.screen.end(
            "count", f"{summary['distinct']:,} different words{losing}: {self._took('count')}"
        )
        return summary

    def _repair(
        self,
        children: Children,
        stack: Stack,
        store: DynamoDBStore,
        watcher: Watcher,
        count: dict[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[dict[str, Any], Repair]:
        """See the other files acked, the hurt ones failed; count what they miss.

        Returns:
            The summary of the counts as they are then, and what was done.
        """
        words, counts = self.work / "words", self.work / "counts"
        hurt = hurt_chains(words, counts)
        if not hurt:  # there are no words
            return count, Repair({}, 0, ())
        self.screen.begin("failed", f"awaiting all but {len(hurt):,} hurt files, then the sweeper")
        if not watcher.wait(_PATIENCE_SECONDS, self.total - len(hurt)):
            raise DemoFailed(f"not all files but the {len(hurt):,} hurt ones ended")
        others = watcher.seen
        end_now(stack, store, hurt, _PATIENCE_SECONDS)
        if not watcher.wait(_PATIENCE_SECONDS):
            raise DemoFailed(f"not all of the {len(hurt):,} hurt files were told as failed")
        failed = [watcher.ended[tag] for tag in hurt]
        if wrong := [one.tag for one in failed if one.status != "failed"]:
            raise DemoFailed(f"{wrong[0]} is acked, though words of it were not counted")
        units = sum(len(one.outstanding) for one in failed)
        self.screen.end(
            "failed",
            f"{len(hurt):,} files, by their deadline; their events name {units:,} words"
            f" (the other files: {others.acked:,} acked)",
        )
        write_events(self.work / "failed.jsonl", failed)
        arguments = [
            f"--words={words}",
            f"--counts={counts}",
            f"--repaired={self.work / 'repaired'}",
            f"--events={self.work / 'failed.jsonl'}",
        ]
        doing = "counting just the words that the failed files miss"
        summary = self._job("repair", doing, arguments, children, stack, environ)
        done = Repair.of(summary, failed)
        self.total += len(done.attempts)
        watcher.expect(self.total)
        self.screen.end(
            "repair", f"{done.missing:,} words, {len(hurt):,} new chains: {self._took('repair')}"
        )
        return summary, done

    def _job(
        self,
        name: str,
        doing: str,
        arguments: list[str],
        children: Children,
        stack: Stack,
        environ: Mapping[str, str],
    ) -> dict[str, Any]:
        self.screen.begin(name, doing)
        begun = time.monotonic()
        told = children.run(
            [
                sys.executable,
                "-m",
                f"pipeline.{name}",
                *arguments,
                f"--queue-url={stack.queue_url}",
                "--run-id=demo",
                "--json",
            ],
            cwd=ROOT,
            environ=environ,
            log=self.work / f"{name}.log",
        )
        self.seconds[name] = time.monotonic() - begun
        summary: dict[str, Any] = json.loads(told.splitlines()[-1])
        return summary

    def _took(self, step: str) -> str:
        return f"{self.seconds[step]:.1f} s"

    def _result(
        self,
        database: Database,
        stack: Stack,
        store: DynamoDBStore,
        watcher: Watcher,
        split: Mapping[str, Any],
        count: Mapping[str, Any],
        repair: Repair | None,
    ) -> Result:
        chains = {chain.tag: chain for chain in store.scan()}
        attempts = {} if repair is None else repair.attempts
        unacked = tuple(
            Unacked(tag, chain.status, why)
            for tag, chain in sorted(chains.items())
            # A failed chain that was repaired stands as its second attempt does.
            if tag not in attempts and (why := _why_not(chain, watcher.ended.get(tag))) is not None
        )
        lost = int(split["files"]) + len(attempts) - len(chains)
        if lost:
            unacked += (Unacked(f"{lost} files", "missing", "have no chain in the table"),)
        used = usage(stack)
        counts = self.work / ("repaired" if attempts else "counts")
        commonest = _commonest(counts)
        self.seconds["all"] = time.monotonic() - self.begun
        return Result(
            database=database,
            files=int(split["files"]),
            words=int(count["words"]),
            distinct=int(count["distinct"]),
            acked=len(chains) - len(attempts) - sum(one.tag in chains for one in unacked),
            unacked=unacked,
            messages=used.messages,
            invocations=used.invocations,
            errors=used.errors,
            writes=used.writes,
            counts=counts,
            commonest=commonest,
            seconds=self.seconds,
            repair=repair,
            uncounted=int(split["words"]) - int(count["words"]),
        )


def _why_not(chain: Chain, told: Ended | None) -> str | None:
    """Why a chain is not acked, as far as its subscriber is concerned; None if it is."""
    if chain.status == "failed":
        return chain.reason or "failed"
    if chain.status != "acked":
        left = chain.started - chain.finished
        return f"{left:,} of {chain.started:,} units are outstanding"
    if told is None:
        return "acked, but its event did not come"
    return None


def _commonest(counts: Path) -> tuple[tuple[str, int], ...]:
    """The commonest words of a folder of counts; of equally common ones the first by alphabet."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(counts)
    order = [("count", "descending"), ("word", "ascending")]
    first = table.take(pc.select_k_unstable(table, _COMMONEST, order))
    return tuple((str(row["word"]), int(row["count"])) for row in first.to_pylist())
