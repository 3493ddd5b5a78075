"""Packs the functions' handlers into the wheel, inside `xorack.cdk`.

A top-level package `lambda_src` would hide a folder of that name in the user's project.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HANDLERS = Path(__file__).parent / "lambda_src"


class BuildWithHandlers(build_py):
    """The usual build, plus the handlers for `xorack.cdk.code`."""

    def run(self) -> None:
        """Build the package, and copy the handlers."""
        super().run()
        if getattr(self, "editable_mode", False):
            return  # the handlers are beside the package
        target = Path(self.build_lib, "xorack", "cdk", HANDLERS.name)
        self.mkpath(str(target))
        for path in sorted(HANDLERS.glob("*.py")):
            self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": BuildWithHandlers})
