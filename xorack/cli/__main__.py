"""``python -m xorack.cli`` runs the command line."""

import sys

from xorack.cli import main

if __name__ == "__main__":
    sys.exit(main())
