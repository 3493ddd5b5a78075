"""The synthesised stack, kept until its sources change: synthesis takes longer than the rest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from demo.children import Children
from demo.errors import DemoFailed

__all__ = ["SETTINGS", "Assembly"]

SETTINGS = {"max_concurrency": "2"}
"""The stack as it is deployed to AWS, but with as many consumers at a time as suit one machine."""

_SOURCES = ("infra", "lambda_src", "xorack")
_ELSEWHERE = frozenset({"cli", "demo", "local", "spark"})
"""Parts of the library that are not in the functions' code."""
_KEPT = "made-of.json"


class Assembly:
    """The cloud assembly of a checkout.

    Args:
        root: The checkout.
        folder: Where the assembly lies.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder

    @property
    def template(self) -> Path | None:
        """The template, if it is there and of the sources as they are now."""
        try:
            kept = json.loads((self.folder / _KEPT).read_text())
            template = self.folder / str(kept["template"])
            same = kept["made_of"] == self._made_of() and template.is_file()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return template if same else None

    def synthesise(self, children: Children) -> Path:
        """Make it anew.

        Args:
            children: What runs the synthesis.

        Returns:
            The template.

        Raises:
            DemoFailed: It could not be made.
        """
        made_of = self._made_of()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        context = [word for pair in SETTINGS.items() for word in ("-c", "=".join(pair))]
        told = children.run(
            [sys.executable, "-m", "infra.synth", "--out", str(self.folder), *context],
            cwd=self.root,
            environ=os.environ,
            log=self.folder.with_name("synth.log"),
        )
        lines = told.splitlines()
        template = Path(lines[-1]) if lines else self.folder
        if not template.is_file():
            raise DemoFailed(f"the synthesis left no template in {self.folder}")
        kept = {"made_of": made_of, "template": os.path.relpath(template, self.folder)}
        (self.folder / _KEPT).write_text(json.dumps(kept))
        return template

    def _made_of(self) -> str:
        digest = hashlib.sha256(repr(sorted(SETTINGS.items())).encode())
        for package in ("aws-cdk-lib", "constructs"):
            try:
                digest.update(f"{package}=={version(package)}\0".encode())
            except PackageNotFoundError:
                digest.update(f"{package} missing\0".encode())
        for path in self._files():
            digest.update(f"{path.relative_to(self.root)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def _files(self) -> Iterator[Path]:
        yield self.root / "cdk.json"
        for name in _SOURCES:
            for path in sorted((self.root / name).rglob("*")):
                inside = path.relative_to(self.root).parts
                if (
                    path.is_file()
                    and "__pycache__" not in inside
                    and not (name == "xorack" and inside[1] in _ELSEWHERE)
                ):
                    yield path
