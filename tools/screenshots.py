"""Makes the pictures of the dashboard's widget and of `xorack web` in docs/images/.

.venv/bin/python -m tools.screenshots
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from tests.support.dead_letters import put, put_messages
from tests.support.in_process import Resources, create_resources, locked_aws
from tools.chromium import Browser, NoChromium
from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.item import encode
from xorack.core.chain import Chain
from xorack.core.hashing import child_id, unit_id
from xorack.core.stamp import TRACED_LENGTH, traced, xor
from xorack.ops.redrive import Redrive
from xorack.ops.snapshot import Snapshot
from xorack.ops.status import ChainStatus
from xorack.web.dead_letter_page import Sample, read_sample, render_sample
from xorack.web.page.server import WebServer
from xorack.web.page.site import DeadLetters, Site
from xorack.web.widget import Theme, render

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images"
NOW = 1_772_442_000_000  # 2026-03-02, nine in the morning
_BACKGROUNDS = {"light": "#ffffff", "dark": "#161d26"}

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
    ("sensors/lisbon/2026-03-02T08", 0, 0, 4, 236, 9, 2),  # its senders report no counts
)
_PENDING = "billing/retry/9f31"


def sample() -> Snapshot:
    """Return example chains at nine in the morning, as the widget would read them."""
    chance = random.Random(7)
    statuses = [_status(chance, *example) for example in _CHAINS]
    statuses.sort(key=lambda status: status.deadline or 0)
    return Snapshot(NOW, tuple(statuses), event_pending=1, more=True)


def _status(chance: random.Random, tag: str, *numbers: float) -> ChainStatus:
    started, finished, age, left, quiet, outstanding = numbers
    units = [chance.getrandbits(64) | 1 for _ in range(int(outstanding))]
    first_seen_at = NOW - round(age * 60_000)
    chain = Chain(
        tag,
        xor(bytes(TRACED_LENGTH), *map(traced, units)),
        "pending" if tag == _PENDING else "open",
        started=int(started),
        finished=int(finished),
        version=1,
        first_seen_at=first_seen_at,
        created_at=None if tag == _PENDING else first_seen_at,
        last_stamp_at=NOW - round(quiet * 1000),
        **{"pending_deadline" if tag == _PENDING else "deadline": NOW + round(left * 60_000)},
    )
    return ChainStatus(chain, NOW)


def page(widget: str, theme: Theme = "light", width: int | None = None) -> str:
    """Put the widget's HTML into a page like CloudWatch's; the width is in pixels."""
    box = "" if width is None else f"width:{width}px;"
    return (
        '<!doctype html><meta charset="utf-8"><style>body{margin:0;padding:16px 20px;'
        f"background:{_BACKGROUNDS[theme]};"
        'font-family:"Amazon Ember","Helvetica Neue",Roboto,Arial,sans-serif}</style>'
        f'<div id="widget" style="{box}">{widget}</div>'
    )


# -- xorack web --------------------------------------------------------------------------------

_ORDERS = "orders/2026-03-02"
_LINES = ("harpoon", "rope", "lamp oil", "biscuit, 40 lb", "log line", "canvas no. 4")
_ENDED = (("failed", "18", 6), ("failed", "23", 41), *(("acked", str(n), n) for n in range(24, 60)))


@contextmanager
def web() -> Iterator[str]:
    """Serve the page over an AWS in this process with example chains; yield its address."""
    with locked_aws() as started:
        aws = create_resources(started)
        now = milliseconds()
        put_chains(aws, now)
        put_letters(aws)
        sqs = aws.client("sqs")
        redrive = Redrive(aws.dead_letter_queue_url, aws.queue_url, sqs)
        store = DynamoDBStore(aws.table_name, aws.partition_key, aws.client("dynamodb"))
        site = Site("stack orders", store, DeadLetters(redrive, sqs), names=_names)
        with WebServer(site) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield server.url
            server.shutdown()


def put_chains(aws: Resources, now: int) -> None:
    """Write the chains of `sample` and some that have ended."""
    chains = [
        replace(
            chain,
            **{
                name: time + now - NOW
                for name in (
                    "first_seen_at",
                    "created_at",
                    "last_stamp_at",
                    "deadline",
                    "pending_deadline",
                )
                if (time := getattr(chain, name)) is not None
            },
        )
        for chain in (status.chain for status in sample().chains[:6])
    ]
    for status, name, minutes in _ENDED:
        chains.append(_ended_chain(status, f"{_ORDERS}/{name}", now - minutes * 61_000))
    for chain in chains:
        item = encode(replace(chain, due_at=chain.effective_deadline), aws.partition_key, 10**9)
        aws.client("dynamodb").put_item(TableName=aws.table_name, Item=item)


def _ended_chain(status: str, tag: str, ended_at: int) -> Chain:
    failed = status == "failed"
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


def put_letters(aws: Resources) -> None:
    """Put messages into the dead-letter queue."""
    put_messages(aws, failed=(17, 18), rejected=(3, 4, 5))
    body = {
        "version": 1,
        "requests": [{"op": "create", "tag": f"{_ORDERS}/61", "id": "c1", "timeout": "1h"}],
    }
    error = "requests[0].timeout: '1h', expected a number of seconds, more than 0"
    put(aws, json.dumps(body), error=error, sender="AROAEXAMPLE:order-intake")


def _names(status: ChainStatus) -> dict[int, str]:
    return {child_id(unit_id(status.chain.tag), line): line for line in _LINES}


def take_web(browser: Browser, theme: Theme) -> None:
    """Take the pictures of `xorack web`."""
    with web() as url:
        shots = {
            "chains": ("", 1280, 860),
            "chain": (f"chain?{urlencode({'tag': f'{_ORDERS}/18'})}", 1280, 900),
            "dead-letters": ("dead-letters", 1280, 860),
        }
        if theme == "dark":
            shots = {"chains": shots["chains"]}
        for name, (path, width, height) in shots.items():
            shown = browser.open(
                url + path, width=width, height=height, scale=2, dark=theme == "dark"
            )
            if name == "dead-letters":
                shown.evaluate("document.querySelector('main>details:last-of-type').open = true")
            shown.wait("document.getElementById('connection').textContent.includes('·')")
            shown.evaluate("scrollTo(0, 0)")
            target = TARGET / f"web-{name}-{theme}.png"
            shown.picture(target)
            print(target, *shown.problems)
            shown.close()


def letters() -> Sample:
    """Return the messages of `put_letters`, as the widget would read them."""
    with locked_aws() as started:
        aws = create_resources(started)
        put_letters(aws)
        return read_sample(aws.dead_letter_queue_url, aws.client("sqs"), 30 * 86_400_000)


def main() -> None:
    """Make the pictures."""
    themes: tuple[Theme, ...] = ("light", "dark")
    try:
        with Browser() as browser:
            for theme in themes:
                target = TARGET / f"widget-{theme}.png"
                source = page(render(sample(), theme), theme)
                browser.open(source, width=1240, height=745, scale=2).picture(target)
                print(target)
                take_web(browser, theme)
            shown = browser.open(page(render_sample(letters(), 9)), width=1240, height=640, scale=2)
            shown.evaluate("document.querySelector('details:last-of-type').open = true")
            shown.picture(target := TARGET / "widget-dead-letters.png")
            print(target)
    except NoChromium as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
