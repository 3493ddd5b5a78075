"""Packs what is outside the package into the wheel, for `xorack.cdk` and `xorack.local`.

A top-level package `lambda_src` or `infra` would hide a folder of that name in the user's project.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SETTINGS = ("resume=all", "removal_policy=destroy", "deletion_protection=false")
"""Those of xorack/local/assembly.py."""


class BuildWithHandlers(build_py):
    """The usual build, plus the handlers for `xorack.cdk.code`, and the app and its assembly.

    Without the CDK it leaves the assembly out, and `xorack local` needs the CDK to make one.
    """

    def run(self) -> None:
        """Build the package, copy the handlers and the app, and synthesise."""
        super().run()
        if getattr(self, "editable_mode", False):
            return  # all of it is beside the package
        library = Path(self.build_lib, "xorack")
        app = library / "local" / "app"
        self.copy("lambda_src", library / "cdk" / "lambda_src")
        self.copy("infra", app / "infra")
        self.copy_file(str(ROOT / "cdk.json"), str(app / "cdk.json"))
        if importlib.util.find_spec("aws_cdk") is None:
            self.warn("no aws-cdk-lib: `xorack local` of this build needs xorack[cdk]")
            return
        assembly = (app / "assembly").absolute()
        subprocess.run(
            [sys.executable, "-m", "infra.synth", "--out", str(assembly)]
            + [word for setting in SETTINGS for word in ("-c", setting)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT.absolute()), "CDK_VALIDATION": "false"},
            check=True,
        )
        for path in assembly.iterdir():  # the rest is for the CDK's CLI
            if path.is_file() and not path.name.endswith((".template.json", ".assets.json")):
                path.unlink()

    def copy(self, name: str, target: Path) -> None:
        """Copy the modules of a folder of the checkout."""
        self.mkpath(str(target))
        for path in sorted((ROOT / name).glob("*.py")):
            self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": BuildWithHandlers})
