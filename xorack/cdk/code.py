"""Where the functions' code is: beside this package in a checkout, inside it in a wheel.

docs/adr/0010-code-without-bundling.md and 0013-constructs-in-the-library.md say why.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from aws_cdk import IgnoreMode, aws_lambda

_LIBRARY: Final = Path(__file__).resolve().parents[1]
_CHECKOUT: Final = _LIBRARY.parent
_CARRIED: Final = Path(__file__).resolve().with_name("lambda_src")
"""The handlers in a wheel: setup.py puts them here."""

ASSET_EXCLUDES: Final = (
    "/*",
    "!/lambda_src",
    "!/xorack",
    "/xorack/cdk",
    "/xorack/spark",
    "/xorack/local",
    "/xorack/cli",
    "/xorack/client",
    "__pycache__",
    "*.pyc",
    ".*",
)
"""What is left out of the functions' code, as .gitignore would have it: all but the handlers and
the library, and of the library what only runs elsewhere."""


def functions_code() -> aws_lambda.Code:
    """The handlers and the library as an asset, with no step in between.

    Returns:
        The code; the same, to the hash, from a checkout and from the wheel that is built of it.
    """
    return aws_lambda.Code.from_asset(
        str(_root()), exclude=list(ASSET_EXCLUDES), ignore_mode=IgnoreMode.GIT
    )


def _root() -> Path:
    """A folder that has `lambda_src` and `xorack` in it."""
    return Path(_assembled().name) if _CARRIED.is_dir() else _CHECKOUT


@lru_cache(maxsize=1)
def _assembled() -> tempfile.TemporaryDirectory[str]:
    """Handlers and library beside each other, as in a checkout; gone when the process ends.

    The CDK copies an asset as soon as it is named, so nobody misses the folder after that.
    """
    folder = tempfile.TemporaryDirectory(prefix="xorack-code-")
    shutil.copytree(_CARRIED, Path(folder.name, "lambda_src"))
    shutil.copytree(
        _LIBRARY,
        Path(folder.name, "xorack"),
        ignore=shutil.ignore_patterns("__pycache__", "cdk", "spark", "local", "cli", "demo"),
    )
    return folder
