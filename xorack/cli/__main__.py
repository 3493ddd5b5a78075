"""``python -m xorack.cli``."""

from __future__ import annotations

import sys

from xorack.cli import main

if __name__ == "__main__":
    sys.exit(main())
