"""Makes the pictures in docs/images: the page with example data, the demo, and a notebook.

.venv/bin/python -m tools.pictures [demo | notebook]
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch
from urllib.parse import urlencode

from playwright.sync_api import Browser, ViewportSize

from tests.support.browser import running_browser
from tests.support.chains import make_chain
from tests.support.dead_letters import put, put_messages
from tests.support.in_process import Resources, create_resources, locked_aws
from tests.support.web import serving
from xorack.aws.clock import milliseconds
from xorack.aws.item import encode
from xorack.core.chain import Chain
from xorack.core.hashing import child_id, unit_id
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import TRACED_LENGTH, traced, xor
from xorack.ops.status import ChainStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = Path(__file__).parents[1] / "docs" / "images"

# tag, units started, finished, minutes of age, minutes until the deadline, seconds since the last
# stamp, units outstanding in the stamp (60: too many to name)
_CHAINS = (
    ("warehouse/2026-03-01/orders-00017.parquet", 48_210, 48_208, 241.5, -1.4, 1980, 2),
    ("warehouse/2026-03-01/orders-00018.parquet", 51_877, 51_876, 236, 4, 40, 1),
    ("warehouse/2026-03-01/clicks-00001.parquet", 1_204_551, 388_100, 232, 8.2, 3, 60),
    ("warehouse/2026-03-01/clicks-00002.parquet", 1_198_040, 871_411, 219, 21, 1, 60),
    ("corpus/Melville, Herman/Moby-Dick; or, The Whale.txt", 218_619, 218_611, 96, 144, 12, 8),
    ("corpus/Austen, Jane/Pride and Prejudice.txt", 126_044, 97_120, 95, 145, 2, 60),
    ("corpus/Кафка, Франц/Der Prozess <2. Auflage>.txt", 84_309, 12_004, 94, 146, 2, 60),
    ("invoices/2026/03/INV-884120.pdf", 34, 31, 12, 228, 5, 3),
    ("invoices/2026/03/INV-884121.pdf", 12, 0, 11, 229, 300, 12),
    ("billing/retry/9f31", 3, 0, 7, 233, 410, 3),
    ("sensors/lisbon/2026-03-02T08", 0, 0, 4, 236, 9, 2),  # no counts
)
_PENDING = "billing/retry/9f31"


def sample(now: int) -> list[ChainStatus]:
    """Return example chains at a time in milliseconds, the earliest deadline first."""
    chance = random.Random(7)
    statuses = [ChainStatus(_chain(chance, now, *example), now) for example in _CHAINS]
    return sorted(statuses, key=lambda status: status.deadline or 0)


def _chain(chance: random.Random, now: int, tag: str, *numbers: float) -> Chain:
    started, finished, age, left, quiet, outstanding = numbers
    units = [chance.getrandbits(64) | 1 for _ in range(int(outstanding))]
    stamp = xor(bytes(TRACED_LENGTH), *map(traced, units))
    first_seen_at, deadline = now - round(age * 60_000), now + round(left * 60_000)
    times = {"created_at": first_seen_at, "deadline": deadline}
    if tag == _PENDING:
        times = {"pending_deadline": deadline}
    times |= {"first_seen_at": first_seen_at, "last_stamp_at": now - round(quiet * 1000)}
    status = "pending" if tag == _PENDING else "open"
    return make_chain(tag, stamp, status, int(started), int(finished), 1, **times)


_ORDERS = "orders/2026-03-02"
_LINES = ("harpoon", "rope", "lamp oil", "biscuit, 40 lb", "log line", "canvas no. 4")
_ENDED = (("failed", "18", 6), ("failed", "23", 41), *(("acked", str(n), n) for n in range(24, 60)))
"""Status, name, minutes since the end."""


@contextmanager
def example() -> Iterator[Resources]:
    """Start an AWS in this process, with example chains and dead letters."""
    with locked_aws() as started:
        aws = create_resources(started)
        now = milliseconds()
        chains = [status.chain for status in sample(now)[:6]]
        chains += [_ended_chain(status, name, now - ago * 61_000) for status, name, ago in _ENDED]
        for chain in chains:
            item = encode(replace(chain, due_at=chain.effective_deadline), aws.partition_key, 10**9)
            aws.client("dynamodb").put_item(TableName=aws.table_name, Item=item)
        put_messages(aws, failed=(17, 18), rejected=(3, 4, 5))
        request = {"op": "create", "tag": f"{_ORDERS}/61", "id": "c1", "timeout": "1h"}
        body = json.dumps({"version": 1, "requests": [request]})
        error = "requests[0].timeout: '1h', expected a number of seconds, more than 0"
        put(aws, body, error=error, sender="AROAEXAMPLE:order-intake")
        again = Request.stamp_(f"{_ORDERS}/18", "bill-canvas", traced(1), finished=1)
        put(aws, *pack([again]), error="id: 'bill-canvas', expected a unique id")
        for _ in range(3):
            aws.client("sqs").send_message(QueueUrl=aws.queue_url, MessageBody=body)
        yield aws


def _ended_chain(status: str, name: str, ended_at: int) -> Chain:
    tag, failed, count = f"{_ORDERS}/{name}", status == "failed", len(_LINES) + 1
    lost = [child_id(unit_id(tag), line) for line in _LINES[1:4]] if failed else []
    stamp = xor(bytes(TRACED_LENGTH), bytes(TRACED_LENGTH), *map(traced, lost))
    times = dict.fromkeys(("first_seen_at", "created_at"), ended_at - 1_500_000)
    times |= {"last_stamp_at": ended_at - 900_000 * failed, "ended_at": ended_at}
    times["deadline"] = ended_at if failed else ended_at + 600_000
    detail = json.dumps({"customer": "Ahab", "ship": "Pequod", "lines": len(_LINES)})
    ended = make_chain(tag, stamp, status, count, count - len(lost), 1, detail=detail, **times)
    return replace(ended, reason="timed out" if failed else None)


def take(
    browser: Browser, name: str, url: str, height: int, scheme: Literal["light", "dark"] = "light"
) -> None:
    """Take a picture of a page of `xorack web` with its last message open."""
    viewport = ViewportSize(width=1260, height=height)
    opened = browser.new_page(viewport=viewport, device_scale_factor=2, color_scheme=scheme)
    opened.goto(url)
    opened.wait_for_selector("#connection:text('·')")
    for letter in opened.locator("main>details:last-of-type").all():
        letter.evaluate("(details) => details.open = true")
    opened.screenshot(path=TARGET / f"{name}.png")
    opened.close()


def main() -> None:
    """Make the pictures."""
    with (
        running_browser() as browser,
        example() as aws,
        serving(aws, "stack orders", candidates=_LINES) as server,
    ):
        chain = urlencode({"tag": f"{_ORDERS}/18"})
        take(browser, "web-chains-light", server.url, 860)
        take(browser, "web-chains-dark", server.url, 860, "dark")
        take(browser, "web-chain-light", f"{server.url}chain?{chain}", 1010)
        take(browser, "web-dead-letters-light", f"{server.url}dead-letters", 860)


# -- make demo LOSE=3 ------------------------------------------------------------------------------

_LEFT_OUT = re.compile(r" *[\d.]+ s  (set up|watch|.*\.\.\.$)|the counts of")


def take_demo() -> None:
    """Run the demo, and draw the end of its terminal output.

    The picture names no fonts, because GitHub blocks them.
    """
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.text import Text

    from demo.__main__ import demo
    from xorack.cli import screen

    ran = Console(record=True, width=100, force_terminal=False, soft_wrap=True)
    drawn = Console(record=True, width=100, force_terminal=False)
    with patch.object(screen, "console", lambda: ran):
        status = demo.main(["--lose", "3"], standalone_mode=False)
    if status:
        sys.exit(status)
    drawn.print("[bold green]$[/] [bold]make demo LOSE=3", highlight=False)
    output = ran.export_text(styles=True).partition("the event of the run, as EventBridge")[0]
    for line in output.removesuffix("\x1b[1m").rstrip().splitlines():
        if not _LEFT_OUT.match(Text.from_ansi(line).plain):
            # The duration of a step depends on the machine, so it is left out.
            drawn.print(Text.from_ansi(re.sub(r"^ *[\d.]+ s  ", "", line)), highlight=False)
    drawn.print()  # otherwise the frame cuts off the descenders of the last line
    no_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    own = no_fonts.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    drawn.save_svg(str(TARGET / "lost-words.svg"), title="", code_format=own, unique_id="terminal")


# -- A notebook ------------------------------------------------------------------------------------

_SETUP = """
from pyspark.sql import functions as F
from xorack.spark import Tracking
path, billed = f"{folder}/lines", f"{folder}/bills"
orders = spark.range(400).selectExpr("id div 5 AS order", "id % 5 AS line", "id % 7 AS amount")
orders = orders.withColumn("sku", F.expr("concat('sku ', (order * 3 + line) % 11)"))
orders.write.parquet(path)
tracking = Tracking(spark, queue_url, "2026-01-31", f"{folder}/records", timeout=3600)
"""
_CELLS = (
    'lines = tracking.rows("lines", chain="order", unit=["order", "line"])\nlines.start(path)',
    """\
rows = spark.read.parquet(path).where("sku <> 'sku 3'").transform(lines.with_unit)
bills = rows.groupBy("order").agg(F.sum("amount").alias("amount"), *lines.evidence(rows))
bills.write.parquet(billed)
lines.audit(billed)""",
    "missing = lines.audit(billed).missing_rows(path)\nmissing.explain()\nmissing",
)
_STYLE = """
body { font: 14px system-ui, sans-serif; width: 940px; margin: 16px; }
pre { background: #f5f5f5; border: 1px solid #ddd; padding: 8px; margin: 0 0 8px }
.output { margin: 0 0 20px 12px } th, td { padding: 2px 12px 2px 0; vertical-align: top }
"""


_QUIET: dict[str, Any] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


def take_notebook() -> None:
    """Run cells on Spark, one of which loses rows, and draw the results as a notebook does."""
    from pyspark.sql import SparkSession

    from tests.support.queue_server import QueueServer
    from xorack.local.isolation import isolated
    from xorack.local.java import java_home

    os.environ |= isolated(os.environ)
    os.environ |= {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    local = SparkSession.builder.master("local[2]").config(map=_QUIET)
    queue = QueueServer()
    with (
        TemporaryDirectory() as folder,
        queue,
        closing_session(local.getOrCreate()) as spark,
    ):
        names = {"spark": spark, "folder": folder, "queue_url": queue.queue_url}
        exec(_SETUP, names)  # noqa: S102
        page = f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>" + "".join(
            f"<pre>{escape(cell)}</pre><div class=output>{_run_cell(cell, names)}</div>"
            for cell in _CELLS
        )
    with running_browser() as browser:
        opened = browser.new_page(
            viewport=ViewportSize(width=990, height=700), device_scale_factor=2
        )
        opened.set_content(page.replace(folder, "s3://bucket"))
        opened.screenshot(path=TARGET / "spark-notebook.png", full_page=True)


def _run_cell(cell: str, names: dict[str, Any]) -> str:
    """Run a cell as a notebook does; return the HTML of its last expression."""
    *body, last = ast.parse(cell).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(body, []), "cell", "exec"), names)  # noqa: S102
    shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
    return str(shown._repr_html_())


@contextmanager
def closing_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop a session of Spark when the block ends."""
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    {"demo": take_demo, "notebook": take_notebook}.get("".join(sys.argv[1:]), main)()
