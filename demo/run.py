"""The steps of the demo: set up, deploy, split, count, and wait until every chain has ended."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from demo.chains import RunMonitor, end_chains, named_words
from demo.database import Database, DemoFailed, copy_standard_library
from demo.display import Display, Result
from demo.loss import RUN, LostWord, lose_words, rows_in
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.text import plural
from xorack.local import environment
from xorack.local.assembly import synthesise
from xorack.local.deploy import deploy
from xorack.local.embedded import EmbeddedAWS
from xorack.local.java import java_home
from xorack.local.program import SIGNALS, run_program
from xorack.ops.backlog import read_backlog
from xorack.ops.redrive import Redrive
from xorack.web.page.server import WebServer
from xorack.web.page.site import DeadLetters, Site

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {"max_concurrency": "2", "resume": "all"}
"""The settings of the stack: few consumers for one machine, and all kinds of callbacks."""
_OUTPUTS = ("words", "counts", "records", "database", "tmp")
_PATIENCE_SECONDS = 30.0
# Settings of another Spark on this machine must not affect the demo, which uses its own Spark.
_OTHER_SPARK = ("HADOOP_", "PYSPARK_", "SPARK_", "_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")


def interrupt_on_signals() -> None:
    """Raise `KeyboardInterrupt` at the first signal, so that child processes end."""
    handled = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]  # as under nohup

    def interrupt(*_: object) -> NoReturn:
        for number in handled:  # ignore further signals, which would interrupt the clean-up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, interrupt)


@contextmanager
def work_folder(work: Path) -> Iterator[Path]:
    """Lock the demo's folder, and remove an earlier demo's output."""
    work = Path(os.path.abspath(work))
    mark = work / "xorack-demo"
    try:
        if work.exists() and any(work.iterdir()) and not mark.exists():
            raise DemoFailed(
                f"{work} is not a folder of the demo, as it has other files; move them away"
            )
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
        raise DemoFailed(f"another demo is running in {work}; wait until it ends") from error
    except OSError as error:
        raise DemoFailed(f"{error.filename or work}: {error.strerror}") from error


@dataclass
class Demo:
    """One run of the demo."""

    database: Database | None  # None for the sources of Python's standard library
    encoding: str
    work: Path  # the folder for all files that the demo makes
    lose: int  # the number of words to lose between the jobs
    display: Display
    keep_page: bool = False

    def run(self) -> Result:
        """Run the demo. Its result lists the chains that are not acked."""
        interrupt_on_signals()
        with self.display, work_folder(self.work) as self.work:
            java, database, python, template = self._prepare()
            with EmbeddedAWS(python=python) as aws:
                with self.display.doing("set up", "starting an AWS on this machine"):
                    self.stack = deploy(aws, template)
                count = len(json.loads(template.read_text())["Resources"])
                self.display.say("set up", f"the stack runs on this machine: {count} resources")
                self.environ = self._spark_environ(aws, java)
                self.store = DynamoDBStore(self.stack.table_name, client=aws.client("dynamodb"))
                with self._page() as url:
                    self.display.say("watch", f"{url} (while the demo runs)")
                    result = self._work(database)
                    if self.keep_page:
                        self._wait_for_user(url)
                return result

    def _work(self, database: Database) -> Result:
        with RunMonitor(self.store, database.files, self.display.files) as monitor:
            split = self._split(database)
            lost = self._lose_words() if self.lose else []
            rows = rows_in(self.work / "words")
            count = self._count(len(lost))
            with self.display.doing("end", "waiting for the event of the run"):
                self._end(monitor, int(split["files"]), lost)
            return self._result(monitor, split, count, lost, rows)

    @contextmanager
    def _page(self) -> Iterator[str]:
        """Serve the page of `xorack web` for the demo's stack."""
        queue = self.stack.client("sqs"), self.stack.queue_url, self.stack.dead_letter_queue_url
        letters = DeadLetters(Redrive(queue[2], queue[1], queue[0]), partial(read_backlog, *queue))
        with WebServer(Site("the demo", self.store, letters)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield server.url
            finally:
                server.shutdown()

    def _wait_for_user(self, url: str) -> None:
        with self.display.doing("watch", f"{url} until Ctrl-C"), suppress(KeyboardInterrupt):
            threading.Event().wait()

    def _prepare(self) -> tuple[Path, Database, Path, Path]:
        """Find Java, and prepare the database, the embedded AWS and the stack's template."""
        display = self.display
        with display.doing("set up", "reading the files"):
            java = java_home()
            database = self.database or copy_standard_library(self.work / "database")
        files = f"{plural(database.files, 'file')} ({database.description})"
        losing = (
            f" On the way, {plural(self.lose, 'row')} will be lost by mistakes that people make."
            if self.lose
            else ""
        )
        display.introduce(
            f"Two Spark jobs count the words of {files}: the first writes a row for each word, the "
            f"second counts the rows.{losing} For xorack, a file with all of its words is a chain. "
            "It is acked once the counts on disk hold each of its words; otherwise it fails, and "
            "its event names what is missing. The run is a chain of these chains, so "
            "it has one event. All of it takes about a minute."
        )
        with display.doing("set up", "preparing the AWS and the stack"):
            say = partial(display.say, "set up")
            python = environment.ensure(notify=say)
            template = synthesise(ROOT, self.work / "cdk", SETTINGS, say)
        return java, database, python, template

    def _spark_environ(self, aws: EmbeddedAWS, java: Path) -> dict[str, str]:
        inherited = {n: v for n, v in aws.environ().items() if not n.startswith(_OTHER_SPARK)}
        folders = dict.fromkeys(("SPARK_LOCAL_DIRS", "TMPDIR"), str(self.work / "tmp"))
        # Most databases are finished before Java's second compiler would help.
        options = " ".join(["-XX:TieredStopAtLevel=1", inherited.get("JDK_JAVA_OPTIONS", "")])
        fixed = {"JAVA_HOME": str(java), "JDK_JAVA_OPTIONS": options, "PYTHONUNBUFFERED": "1"}
        return {**inherited, **folders, **fixed}

    def _split(self, database: Database) -> dict[str, Any]:
        options: dict[str, Any] = {"database": database.folder, "encoding": self.encoding}
        options |= self._folders("words")
        result = "{files:,} files became {words:,} rows, one a word"
        return self._run_job("split", "Spark splits the files into words", result, options)

    def _lose_words(self) -> list[LostWord]:
        """Lose words that ``split`` has written, before ``count`` reads them."""
        with self.display.doing("lose", "losing rows between the jobs"):
            lost = lose_words(self.work / "words", self.lose)
        no_more = ": there are no more files" if len(lost) < self.lose else ""
        rows = f"{plural(len(lost), 'row')} of {_files(lost)} lost, and no one was notified"
        self.display.say("lose", f"{rows}{no_more}")
        return lost

    def _count(self, lost: int) -> dict[str, Any]:
        result = "{distinct:,} different words" + (", {missing:,} words missing" if lost else "")
        options: dict[str, Any] = self._folders("words", "counts")
        if lost:
            options["allow-missing"] = True
        summary = self._run_job("count", "Spark counts the words", result, options)
        if summary["missing"] != lost:
            missing = plural(summary["missing"], "missing word")
            raise DemoFailed(f"count reports {missing}, but {lost:,} were lost: this is a defect")
        return summary

    def _end(self, monitor: RunMonitor, files: int, lost: list[LostWord]) -> None:
        """Wait for the end of the run, which fails at its deadline if one of its files has failed.

        Files that have lost words do not end by themselves either, so their deadlines are moved.
        """
        tags = sorted({word.tag for word in lost})
        if not monitor.wait(_PATIENCE_SECONDS, files - len(tags)):
            raise DemoFailed(
                f"not every file ended besides the {_files(lost)} with lost words: this is a defect"
            )
        if tags:
            monitor.wait_for_notes(tags, _PATIENCE_SECONDS)
            self.display.say("end", f"the deadline of {_files(lost)} is moved to now")
            end_chains(self.stack, tags, lambda seconds: monitor.wait(seconds, files))
        if monitor.failed:
            end_chains(self.stack, [RUN], monitor.wait_for_end)
        monitor.wait_for_end(_PATIENCE_SECONDS)

    def _folders(self, *names: str) -> dict[str, Path]:
        return {name: self.work / name for name in names}

    def _run_job(
        self, name: str, doing: str, result: str, options: Mapping[str, object]
    ) -> dict[str, Any]:
        job = {"queue-url": self.stack.queue_url, "run-id": RUN, **self._folders("records")}
        arguments = [
            f"--{option}" if value is True else f"--{option}={value}"
            for option, value in {**job, **options}.items()
        ]
        command = [sys.executable, "-m", f"pipeline.{name}", *arguments, "--json"]
        log = self.work / f"{name}.log"
        with self.display.doing(name, doing):
            output = run_program(command, cwd=ROOT, environ=self.environ, log=log)
        summary = dict(json.loads(output.splitlines()[-1]))
        self.display.say(name, result.format(**summary))
        return summary

    def _result(
        self,
        monitor: RunMonitor,
        split: Mapping[str, Any],
        count: Mapping[str, Any],
        lost: list[LostWord],
        rows: int,
    ) -> Result:
        events = {event["detail"]["tag"]: event for event in self.stack.events()[0]}
        tags = {word.tag for word in lost}
        named = named_words((events[tag] for tag in sorted(tags) if tag in events), lost)
        failed = [t for t in monitor.chain.ended_children["failed_tags"] if t not in tags]
        unacked = [(tag, str(chain.reason)) for tag, chain in self.store.read(failed).items()]
        if (more := monitor.failed - len(tags) - len(unacked)) > 0:
            unacked.append((f"{more:,} more", "see the page, or xorack list --status failed"))
        if RUN not in events:
            unacked.append((RUN, "no event of the run arrived"))
        counts = os.path.relpath(self.work / "counts")
        counts = str(self.work / "counts") if counts.startswith("..") else counts
        event = events.get(RUN, {})
        return Result(split, count, monitor.acked, unacked, named, rows, event, counts)


def _files(lost: Iterable[LostWord]) -> str:
    return plural(len({word.file for word in lost}), "file")
