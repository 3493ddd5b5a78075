"""Packs the stack's assembly, which has the functions' code, into the wheel."""

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
    """The usual build, plus the assembly."""

    def run(self) -> None:
        """Build the package, and synthesise."""
        if getattr(self, "editable_mode", False):
            super().run()
            return  # all of it is beside the package
        if importlib.util.find_spec("aws_cdk") is None:
            raise SystemExit(
                "error: the wheel needs the CDK: build it with isolation, or install what "
                "build-system.requires in pyproject.toml lists"
            )
        super().run()
        assembly = Path(self.build_lib, "xorack", "local", "app", "assembly").absolute()
        subprocess.run(
            [sys.executable, "-m", "infra.synth", "--out", str(assembly)]
            + [word for setting in SETTINGS for word in ("-c", setting)],
            cwd=ROOT,
            # The path names what an isolated build has installed.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT.absolute()), *sys.path]),
                "CDK_VALIDATION": "false",
            },
            check=True,
        )
        for path in assembly.iterdir():  # the rest is for the CDK's CLI
            if path.is_file() and not path.name.endswith((".template.json", ".assets.json")):
                path.unlink()


setup(cmdclass={"build_py": BuildWithHandlers})
