"""The CDK app for `cdk deploy` and `make deploy`.

Any Python can start it. It uses the packages of `.venv` if `make venv` has made this environment,
or else the installed packages.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parent / ".venv"


def run() -> int:
    """Synthesise the app and return the exit status. The CDK passes settings in the environment."""
    python = VENV / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 - no shell is needed
    try:
        from infra.synth import main
    except (ModuleNotFoundError, SyntaxError) as error:
        print(f"error: {error}: run `make venv`, then `cdk deploy` again", file=sys.stderr)
        return 1
    return main([])


if __name__ == "__main__":
    sys.exit(run())
