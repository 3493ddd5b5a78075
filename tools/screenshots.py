"""Makes the pictures of the dashboard's widget in docs/images/, with chains as they may be.

.venv/bin/python -m tools.screenshots
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Final

from tools.chromium import NoChromium, picture
from xorack.core.chain import Chain
from xorack.core.stamp import traced, xor_bytes
from xorack.ops.dashboard import Overview, Theme, render
from xorack.ops.status import ChainStatus, status_of

TARGET: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
NOW: Final = 1_772_442_000_000  # 2026-03-02, nine in the morning
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
_BACKGROUNDS: Final = {"light": "#ffffff", "dark": "#161d26"}

# tag, units started, finished, minutes of age, minutes until the deadline, seconds since the last
# stamp, units named as outstanding (None: so many that nobody can name them)
_CHAINS: Final = (
    ("warehouse/2026-03-01/orders-00017.parquet", 48_210, 48_208, 241.5, -1.4, 1980, 2),
    ("warehouse/2026-03-01/orders-00018.parquet", 51_877, 51_876, 236, 4, 40, 1),
    ("warehouse/2026-03-01/clicks-00001.parquet", 1_204_551, 388_100, 232, 8.2, 3, None),
    ("warehouse/2026-03-01/clicks-00002.parquet", 1_198_040, 871_411, 219, 21, 1, None),
    ("corpus/Melville, Herman/Moby-Dick; or, The Whale.txt", 218_619, 218_611, 96, 144, 12, 8),
    ("corpus/Austen, Jane/Pride and Prejudice.txt", 126_044, 97_120, 95, 145, 2, None),
    ("corpus/Кафка, Франц/Der Prozess <2. Auflage>.txt", 84_309, 12_004, 94, 146, 2, None),
    ("invoices/2026/03/INV-884120.pdf", 34, 31, 12, 228, 5, 3),
    ("invoices/2026/03/INV-884121.pdf", 12, 0, 11, 229, 300, 12),
)


def sample() -> Overview:
    """Chains as they may be at nine in the morning.

    Returns:
        What the widget would read.
    """
    chance = random.Random(7)
    found = [_status(chance, *described) for described in _CHAINS]
    # One that its sender never created, one whose sender does not count.
    found.append(_status(chance, "billing/retry/9f31", 3, 0, 7, 233, 410, 3, pending=True))
    found.append(_status(chance, "sensors/lisbon/2026-03-02T08", 0, 0, 4, 236, 9, 2))
    found.sort(key=lambda one: one.deadline or 0)
    return Overview(NOW, tuple(found), event_pending=1, more=True)


def _status(
    chance: random.Random,
    tag: str,
    started: int,
    finished: int,
    age: float,
    left: float,
    quiet: int,
    named: int | None,
    *,
    pending: bool = False,
) -> ChainStatus:
    """How one such chain stands, its stamp the XOR of what is outstanding, as in reality."""
    stamp = bytes(len(traced(1)))
    for _ in range(60 if named is None else named):
        stamp = xor_bytes(stamp, traced(chance.getrandbits(64) | 1))
    first_seen_at = NOW - round(age * _MINUTE)
    chain = Chain(
        tag,
        stamp,
        "pending" if pending else "open",
        started=started,
        finished=finished,
        version=1,
        first_seen_at=first_seen_at,
        created_at=None if pending else first_seen_at,
        last_stamp_at=NOW - quiet * _SECOND,
        deadline=NOW + round(left * _MINUTE),
    )
    return status_of(chain, NOW)


def page(widget: str, theme: Theme = "light", width: int | None = None) -> str:
    """A page around the widget, as CloudWatch has one.

    Args:
        widget: The widget's HTML.
        theme: Of the page.
        width: Of the widget in pixels; all there is by default.

    Returns:
        HTML.
    """
    box = "" if width is None else f"width:{width}px;"
    return (
        '<!doctype html><meta charset="utf-8"><style>body{margin:0;padding:16px 20px;'
        f"background:{_BACKGROUNDS[theme]};"
        'font-family:"Amazon Ember","Helvetica Neue",Roboto,Arial,sans-serif}</style>'
        f'<div id="widget" style="{box}">{widget}</div>'
    )


def main() -> int:
    """Make the pictures.

    Returns:
        The exit status.
    """
    TARGET.mkdir(parents=True, exist_ok=True)
    themes: tuple[Theme, ...] = ("light", "dark")
    try:
        for theme in themes:
            target = TARGET / f"widget-{theme}.png"
            picture(page(render(sample(), theme), theme), target, width=1240, height=745)
            print(target)
    except NoChromium as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
