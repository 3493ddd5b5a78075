"""The functions' code: beside this package in a checkout, inside it in a wheel.

The ADRs 10 and 13 in docs/adr/ give the reasons.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from aws_cdk import IgnoreMode, aws_lambda

_LIBRARY: Final = Path(__file__).resolve().parents[1]
_HANDLERS_IN_WHEEL: Final = Path(__file__).resolve().with_name("lambda_src")  # see setup.py

# Patterns of .gitignore: all but the handlers and the parts of the library that they use.
_EXCLUDES: Final = (
    "/*", "!/lambda_src", "!/xorack", "/xorack/cdk", "/xorack/cli", "/xorack/client",
    "/xorack/local", "/xorack/spark", "__pycache__", "*.pyc", ".*",
)  # fmt: skip


def functions_code() -> aws_lambda.Code:
    """Return the handlers and the library as an asset.

    A checkout and the wheel built from it give the same asset, to the hash.
    """
    root = Path(_assembled().name) if _HANDLERS_IN_WHEEL.is_dir() else _LIBRARY.parent
    return aws_lambda.Code.from_asset(
        str(root), exclude=list(_EXCLUDES), ignore_mode=IgnoreMode.GIT
    )


@lru_cache(maxsize=1)
def _assembled() -> tempfile.TemporaryDirectory[str]:
    """Copy handlers and library side by side, as in a checkout; deleted when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="xorack-code-")
    shutil.copytree(_HANDLERS_IN_WHEEL, Path(folder.name, "lambda_src"))
    shutil.copytree(
        _LIBRARY, Path(folder.name, "xorack"), ignore=shutil.ignore_patterns("__pycache__", "cdk")
    )
    return folder
