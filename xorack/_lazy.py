"""Loads public names at their first use (PEP 562), so that importing a package is cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str], extra: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, and its public names.

    Args:
        package: The name of the package.
        homes: Modules in `xorack`, each with its public names, separated by blanks.
        extra: The extra of xorack that installs the dependencies of these modules.
    """
    modules = {name: f"xorack.{home}" for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(modules[name])
        except ModuleNotFoundError as error:
            needed = (error.name or "").partition(".")[0]
            if not extra or needed in ("", "xorack"):
                raise
            problem = f"{package} needs {needed}: install xorack with the extra {extra}"
            raise ModuleNotFoundError(problem, name=error.name) from error
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *modules}), [*modules]
