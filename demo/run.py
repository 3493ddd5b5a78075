"""The steps of the demo: set up, deploy, split, count, and wait for the end of every chain."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from demo.chains import ChainMonitor, end_chains, named_words, why_unacked
from demo.database import Database, DemoFailed, copy_standard_library
from demo.display import Display, Result
from demo.loss import RUN, LostWord, lose_words
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.text import plural
from xorack.local import environment
from xorack.local.assembly import synthesise
from xorack.local.deploy import Stack, deploy
from xorack.local.embedded import EmbeddedAWS
from xorack.local.java import java_home
from xorack.local.program import SIGNALS, run_program

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {"max_concurrency": "2", "resume": "all"}
"""The stack's settings: as many consumers as suit one machine, and all kinds of callbacks."""
_OUTPUTS = ("words", "counts", "records", "database", "tmp")
_PATIENCE_SECONDS = 30.0
_COMMONEST = 10
_LISTED = 5
# Settings of another Spark on this machine: the demo uses the one in its environment.
_OTHER_SPARK = ("HADOOP_", "PYSPARK_", "SPARK_", "_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")


def interrupt_on_signals() -> None:
    """Let the first signal that ends a program raise `KeyboardInterrupt`: its children end."""
    handled = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]  # as under nohup

    def interrupt(*_: object) -> NoReturn:
        for number in handled:  # a second signal would interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, interrupt)


@contextmanager
def work_folder(work: Path) -> Iterator[Path]:
    """Lock the demo's folder and remove an earlier demo's output."""
    work = Path(os.path.abspath(work))
    mark = work / "xorack-demo"
    try:
        if work.exists() and any(work.iterdir()) and not mark.exists():
            raise DemoFailed(f"{work} is not the demo's: it holds other things")
        work.mkdir(parents=True, exist_ok=True)
        with mark.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in _OUTPUTS:
                shutil.rmtree(work / name, ignore_errors=True)
            (work / "tmp").mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work / "tmp", ignore_errors=True)
    except BlockingIOError as error:
        raise DemoFailed(f"another demo is running in {work}") from error
    except OSError as error:
        raise DemoFailed(f"{error.filename or work}: {error.strerror}") from error


@dataclass
class Demo:
    """One run of the demo."""

    database: Database | None  # None for the sources of Python's standard library
    encoding: str
    work: Path  # the folder for everything that the demo makes
    lose: int  # words to lose between the jobs
    display: Display

    def run(self) -> Result:
        """Run the demo; chains that are not acked are part of its result."""
        self.begun = time.monotonic()
        self.seconds: dict[str, float] = {}
        interrupt_on_signals()
        with work_folder(self.work) as self.work:
            java, database, python, template = self._prepare()
            with EmbeddedAWS(python=python) as aws:
                self.stack = self._deploy(aws, template)
                self.environ = self._spark_environ(aws, java)
                self.store = DynamoDBStore(self.stack.table_name, client=aws.client("dynamodb"))
                self.seconds["set up"] = time.monotonic() - self.begun
                with ChainMonitor(
                    self.stack, self.store, database.files, self.display.chains
                ) as monitor:
                    split = self._split(database)
                    monitor.expected = int(split["files"])
                    lost = self._lose_words() if self.lose else []
                    count = self._count(len(lost))
                    failed = self._fail(monitor, lost) if lost else []
                    monitor.wait(_PATIENCE_SECONDS)
                named = named_words((monitor.events[tag] for tag in failed), lost)
                return self._result(monitor, split, count, failed, named)

    def _prepare(self) -> tuple[Path, Database, Path, Path]:
        """Find or make a Java, the database, the embedded AWS's Python, the stack's template."""
        begin, end = self.display.begin, self.display.end
        begin("Java", "searching one that runs Spark")
        java = java_home()
        end("Java", str(java))
        begin("database", "counting its files")
        database = self.database or copy_standard_library(self.work / "database")
        size = f"{plural(database.files, 'file')}, {database.size / 1e6:.1f} MB"
        end("database", f"{size}: {database.description}")
        begin("AWS", "checking its environment")
        python = environment.ensure(notify=lambda line: begin("AWS", line))
        cdk = self.work / "cdk"
        template = synthesise(ROOT, cdk, SETTINGS, lambda line: begin("stack", line))
        end("stack", "synthesised")
        return java, database, python, template

    def _deploy(self, aws: EmbeddedAWS, template: Path) -> Stack:
        self.display.begin("AWS", "deploying the stack")
        stack = deploy(aws, template)
        count = len(json.loads(template.read_text())["Resources"])
        self.display.end("AWS", f"{aws.endpoint_url}, stack {stack.name}: {count} resources")
        return stack

    def _spark_environ(self, aws: EmbeddedAWS, java: Path) -> dict[str, str]:
        inherited = {n: v for n, v in aws.environ().items() if not n.startswith(_OTHER_SPARK)}
        folders = dict.fromkeys(("SPARK_LOCAL_DIRS", "TMPDIR"), str(self.work / "tmp"))
        # Most databases are done before Java's second compiler has paid for itself.
        options = " ".join(["-XX:TieredStopAtLevel=1", inherited.get("JDK_JAVA_OPTIONS", "")])
        fixed = {"JAVA_HOME": str(java), "JDK_JAVA_OPTIONS": options, "PYTHONUNBUFFERED": "1"}
        return {**inherited, **folders, **fixed}

    def _split(self, database: Database) -> dict[str, Any]:
        options: dict[str, Any] = {"database": database.folder, "encoding": self.encoding}
        options |= self._folders("words")
        return self._run_job("split", "files to words", "{files:,} files, {words:,} words", options)

    def _lose_words(self) -> list[LostWord]:
        """Delete words that ``split`` wrote, before ``count`` reads them."""
        doing = f"deleting {plural(self.lose, 'word')} that split wrote, before count reads them"
        self.display.begin("loss", doing)
        lost = lose_words(self.work / "words", self.lose)
        result = f"deleted {plural(len(lost), 'word')} of {_files(lost)}"
        no_more = ": there are no more" if len(lost) < self.lose else ""
        self.display.end("loss", result + no_more)
        for word in lost[:_LISTED]:
            self.display.end("loss", f"{word.file}, position {word.position:,}: {word.word}")
        return lost

    def _count(self, lost: int) -> dict[str, Any]:
        result = "{distinct:,} different words" + (", {missing:,} missing" if lost else "")
        options: dict[str, Any] = self._folders("words", "counts")
        if lost:
            options["allow-missing"] = True
        summary = self._run_job("count", "words to counts", result, options)
        if summary["missing"] != lost:
            missing = plural(summary["missing"], "missing word")
            raise DemoFailed(f"count reports {missing}, but {lost:,} were deleted")
        return summary

    def _fail(self, monitor: ChainMonitor, lost: list[LostWord]) -> list[str]:
        """End the incomplete chains by their deadline; return their tags."""
        doing = f"waiting for the other files, then setting the deadlines of {_files(lost)} to now"
        self.display.begin("failed", doing)
        if not monitor.wait(_PATIENCE_SECONDS, len(lost)):
            raise DemoFailed(f"some files besides the {_files(lost)} with lost words did not end")
        acked, tags = monitor.ended["acked"], monitor.incomplete()
        end_chains(self.stack, monitor, tags)
        result = f"{plural(len(tags), 'file')}, at their deadline"
        self.display.end("failed", f"{result} (the other files: {acked:,} acked)")
        return tags

    def _folders(self, *names: str) -> dict[str, Path]:
        return {name: self.work / name for name in names}

    def _run_job(
        self, name: str, doing: str, result: str, options: Mapping[str, object]
    ) -> dict[str, Any]:
        self.display.begin(name, doing)
        begun = time.monotonic()
        job = {"queue-url": self.stack.queue_url, "run-id": RUN, **self._folders("records")}
        arguments = [
            f"--{option}" if value is True else f"--{option}={value}"
            for option, value in {**job, **options}.items()
        ]
        command = [sys.executable, "-m", f"pipeline.{name}", *arguments, "--json"]
        log = self.work / f"{name}.log"
        output = run_program(command, cwd=ROOT, environ=self.environ, log=log)
        self.seconds[name] = time.monotonic() - begun
        summary = dict(json.loads(output.splitlines()[-1]))
        self.display.end(name, f"{result.format(**summary)}: {self.seconds[name]:.1f} s")
        return summary

    def _result(
        self,
        monitor: ChainMonitor,
        split: Mapping[str, Any],
        count: Mapping[str, Any],
        failed: list[str],
        named: list[LostWord],
    ) -> Result:
        chains = {chain.tag: chain for chain in self.store.scan()}
        unacked: list[tuple[str, str, str]] = [
            (tag, chain.status, reason)
            for tag, chain in sorted(chains.items())
            if tag not in failed and (reason := why_unacked(chain, tag in monitor.events))
        ]
        acked = len(chains) - len(failed) - len(unacked)
        if missing := int(split["files"]) - len(chains):
            unacked.append((plural(missing, "file"), "missing", "without a chain in the table"))
        counts = self.work / "counts"
        commonest, used = _commonest(counts), self.stack.usage()
        self.seconds["all"] = time.monotonic() - self.begun
        return Result(split, count, acked, unacked, named, used, counts, commonest, self.seconds)


def _files(lost: Iterable[LostWord]) -> str:
    return plural(len({word.file for word in lost}), "file")


def _commonest(counts: Path) -> list[tuple[str, int]]:
    """Return the commonest words; equally common ones by alphabet."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(counts)
    order = [("count", "descending"), ("word", "ascending")]
    first = table.take(pc.select_k_unstable(table, _COMMONEST, order))
    return [(row["word"], row["count"]) for row in first.to_pylist()]
