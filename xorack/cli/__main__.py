"""``python -m xorack.cli``."""

import sys

from xorack.cli import main

if __name__ == "__main__":
    sys.exit(main())
