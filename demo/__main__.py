"""``python -m demo``."""

from __future__ import annotations

import sys

from demo.command import demo
from xorack.cli.commands import run

sys.exit(run(command=demo))
