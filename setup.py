"""What pyproject.toml cannot say: a wheel carries the functions' handlers inside `xorack.cdk`.

Not as a package beside `xorack`: `lambda_src` is a name that others use, and an installed package
of it would come before a folder of theirs.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HANDLERS = Path(__file__).parent / "lambda_src"


class BuildWithHandlers(build_py):
    """Builds the package, and copies the handlers to where `xorack.cdk.code` finds them."""

    def run(self) -> None:
        """Build."""
        super().run()
        if getattr(self, "editable_mode", False):
            return  # a checkout has them beside the package
        target = Path(self.build_lib, "xorack", "cdk", HANDLERS.name)
        self.mkpath(str(target))
        for path in sorted(HANDLERS.glob("*.py")):
            self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": BuildWithHandlers})
