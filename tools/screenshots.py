"""Makes the pictures of the dashboard's widget in docs/images/, with example chains.

.venv/bin/python -m tools.screenshots
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tools.chromium import Browser, NoChromium
from xorack.core.chain import Chain
from xorack.core.stamp import TRACED_LENGTH, traced, xor
from xorack.ops.dashboard import Theme, render
from xorack.ops.snapshot import Snapshot
from xorack.ops.status import ChainStatus

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
    except NoChromium as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
