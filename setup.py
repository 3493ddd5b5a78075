"""Adds the stack's assembly, which contains the functions' code, to the wheel."""

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
"""The settings of xorack/local/assembly.py."""


class BuildWithHandlers(build_py):
    """The usual build, which also adds the assembly."""

    def run(self) -> None:
        """Build the package, and synthesise the stack."""
        if getattr(self, "editable_mode", False):
            super().run()
            return  # an editable installation uses the checkout
        if importlib.util.find_spec("aws_cdk") is None:
            raise SystemExit(
                "error: the wheel needs the CDK: build it with isolation, or install the packages "
                "of build-system.requires in pyproject.toml"
            )
        super().run()
        assembly = Path(self.build_lib, "xorack", "local", "app", "assembly").absolute()
        subprocess.run(
            [sys.executable, "-m", "infra.synth", "--out", str(assembly)]
            + [word for setting in SETTINGS for word in ("-c", setting)],
            cwd=ROOT,
            # The path leads to packages that an isolated build has installed.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT.absolute()), *sys.path]),
                "CDK_VALIDATION": "false",
            },
            check=True,
        )
        for path in assembly.iterdir():  # the other files are only for the CDK's command line
            if path.is_file() and not path.name.endswith((".template.json", ".assets.json")):
                path.unlink()


setup(cmdclass={"build_py": BuildWithHandlers})
