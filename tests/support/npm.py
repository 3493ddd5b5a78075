"""The npm packages of a folder, pinned and hashed in its package-lock.json.

`python -m tests.support.npm tools/javascript` installs those of a folder.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Environ = dict[str, str]


def install(folder: Path, unpack: Callable[[Environ], object] = lambda environ: None) -> None:
    """Install the locked packages unless they are there, then `unpack` by the wheel's node.

    Raises:
        subprocess.CalledProcessError: npm or node failed, which said why on stderr.
    """
    lock, stamp = (folder / "package-lock.json").read_text(), folder / "node_modules" / ".installed"
    npm = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environ = {**os.environ, "PATH": path}
    with open(folder / "package.json") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not (stamp.is_file() and stamp.read_text() == lock):
            subprocess.run(npm, cwd=folder, env=environ, stdin=subprocess.DEVNULL, check=True)
            unpack(environ)
            stamp.write_text(lock)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
