"""Example chains and messages, the pictures of them in docs/images, and that of the demo.

.venv/bin/python -m tests.support.pictures [demo]
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

from playwright.sync_api import Browser

from tests.support.browser import browser_of
from tests.support.dead_letters import put, put_messages
from tests.support.in_process import Resources, create_resources, locked_aws
from tests.support.web import serving
from xorack.aws.clock import milliseconds
from xorack.aws.item import encode
from xorack.core.chain import Chain
from xorack.core.hashing import child_id, unit_id
from xorack.core.stamp import TRACED_LENGTH, traced, xor

TARGET = Path(__file__).parents[2] / "docs" / "images"

# tag, units started, finished, minutes of age, minutes until the deadline, seconds since the last
# stamp, units outstanding in the stamp (60: too many to name)
_CHAINS = (
    ("warehouse/2026-03-01/orders-00017.parquet", 48_210, 48_208, 241.5, -1.4, 1980, 2),
    ("warehouse/2026-03-01/orders-00018.parquet", 51_877, 51_876, 236, 4, 40, 1),
    ("warehouse/2026-03-01/clicks-00001.parquet", 1_204_551, 388_100, 232, 8.2, 3, 60),
    ("warehouse/2026-03-01/clicks-00002.parquet", 1_198_040, 871_411, 219, 21, 1, 60),
    ("corpus/Melville, Herman/Moby-Dick; or, The Whale.txt", 218_619, 218_611, 96, 144, 12, 8),
    ("corpus/Austen, Jane/Pride and Prejudice.txt", 126_044, 97_120, 95, 145, 2, 60),
)


def _chain(chance: random.Random, now: int, tag: str, *numbers: float) -> Chain:
    started, finished, age, left, quiet, outstanding = numbers
    units = [chance.getrandbits(64) | 1 for _ in range(int(outstanding))]
    first_seen_at = now - round(age * 60_000)
    return Chain(
        tag,
        xor(bytes(TRACED_LENGTH), *map(traced, units)),
        "open",
        started=int(started),
        finished=int(finished),
        version=1,
        first_seen_at=first_seen_at,
        created_at=first_seen_at,
        last_stamp_at=now - round(quiet * 1000),
        deadline=now + round(left * 60_000),
    )


_ORDERS = "orders/2026-03-02"
_LINES = ("harpoon", "rope", "lamp oil", "biscuit, 40 lb", "log line", "canvas no. 4")
_ENDED = (("failed", "18", 6), ("failed", "23", 41), *(("acked", str(n), n) for n in range(24, 60)))
"""Status, name, minutes since the end."""


@contextmanager
def example() -> Iterator[Resources]:
    """Start an AWS in this process with example chains and dead-lettered messages."""
    with locked_aws() as started:
        aws = create_resources(started)
        now = milliseconds()
        chance = random.Random(7)
        chains = [_chain(chance, now, *example) for example in _CHAINS]
        chains += [_ended_chain(status, name, now - ago * 61_000) for status, name, ago in _ENDED]
        for chain in chains:
            item = encode(replace(chain, due_at=chain.effective_deadline), aws.partition_key, 10**9)
            aws.client("dynamodb").put_item(TableName=aws.table_name, Item=item)
        put_messages(aws, failed=(17, 18), rejected=(3, 4, 5))
        request = {"op": "create", "tag": f"{_ORDERS}/61", "id": "c1", "timeout": "1h"}
        body = json.dumps({"version": 1, "requests": [request]})
        error = "requests[0].timeout: '1h', expected a number of seconds, more than 0"
        put(aws, body, error=error, sender="AROAEXAMPLE:order-intake")
        yield aws


def _ended_chain(status: str, name: str, ended_at: int) -> Chain:
    tag, failed = f"{_ORDERS}/{name}", status == "failed"
    lost = [child_id(unit_id(tag), line) for line in _LINES[1:4]] if failed else []
    return Chain(
        tag,
        xor(bytes(TRACED_LENGTH), bytes(TRACED_LENGTH), *map(traced, lost)),
        status,  # type: ignore[arg-type]
        started=len(_LINES) + 1,
        finished=len(_LINES) + 1 - len(lost),
        version=1,
        first_seen_at=ended_at - 3_600_000,
        created_at=ended_at - 3_600_000,
        last_stamp_at=ended_at - 3_000_000,
        ended_at=ended_at,
        reason="timed out" if failed else None,
        detail=json.dumps({"customer": "Ahab", "ship": "Pequod", "lines": len(_LINES)}),
    )


def take(browser: Browser, name: str, shown: str, height: int, scheme: Any = "light") -> None:
    """Take a picture of an address, its last message open."""
    viewport = {"width": 1260, "height": height}
    opened = browser.new_page(viewport=viewport, device_scale_factor=2, color_scheme=scheme)
    opened.goto(shown)
    opened.wait_for_selector("#connection:text('·')")
    for letter in opened.locator("main>details:last-of-type").all():
        letter.evaluate("(details) => details.open = true")
    opened.screenshot(path=TARGET / f"{name}.png")
    opened.close()


def main() -> None:
    """Make the pictures."""
    with (
        browser_of() as browser,
        example() as aws,
        serving(aws, "stack orders", candidates=_LINES) as server,
    ):
        chain = urlencode({"tag": f"{_ORDERS}/18"})
        take(browser, "web-chains-light", server.url, 860)
        take(browser, "web-chains-dark", server.url, 860, "dark")
        take(browser, "web-chain-light", f"{server.url}chain?{chain}", 900)
        take(browser, "web-dead-letters-light", f"{server.url}dead-letters", 860)


# -- make demo LOSE=3 ------------------------------------------------------------------------------

_LEFT_OUT = re.compile(
    r" *[\d.]+ s  (Java|stack|AWS|chains|.*\.\.\.$)|counts  |commonest words|  +[\d,]+  "
)


def take_demo(target: Path = TARGET / "lost-words.svg") -> None:
    """Run the demo, and draw what its terminal shows at the end; GitHub loads no font for it."""
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
    for line in ran.export_text(styles=True).splitlines():
        text = Text.from_ansi(line)
        if not _LEFT_OUT.match(text.plain):
            drawn.print(text, overflow="ellipsis", no_wrap=True, highlight=False)
    drawn.print()  # otherwise the frame cuts the last line's descenders off
    no_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    own = no_fonts.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    drawn.save_svg(str(target), title="", code_format=own, unique_id="terminal")


if __name__ == "__main__":
    take_demo() if sys.argv[1:] == ["demo"] else main()
