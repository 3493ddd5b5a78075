"""The synthesised stack, kept until its sources change: synthesis is the demo's slowest step."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from demo.children import Children
from demo.errors import DemoFailed

_SETTINGS = {"max_concurrency": "2", "resume": "all"}
"""The settings: as many concurrent consumers as suit one machine, and all kinds of resumption."""
_SOURCES = ("infra", "lambda_src", "xorack")
_NOT_DEPLOYED = frozenset({"cli", "client", "local", "spark"})
"""Folders of the library that neither the synthesis nor the functions use."""


def synthesise(root: Path, folder: Path, children: Children) -> tuple[Path, bool]:
    """Synthesise the checkout's stack into a folder unless it is there already.

    Returns:
        The template, and whether the folder had it, made of the sources as they are now.

    Raises:
        DemoFailed: The synthesis failed.
    """
    fingerprint, made_of = _fingerprint(root), folder / "made-of"
    if made_of.is_file() and made_of.read_text() == fingerprint:
        for template in folder.glob("*.template.json"):
            return template, True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    context = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    children.run(
        [sys.executable, "-m", "infra.synth", "--out", str(folder), *context],
        cwd=root,
        # The CDK's own validation takes 4 s; the tests validate the template.
        environ={**os.environ, "CDK_VALIDATION": "false"},
        log=folder.with_name("synth.log"),
    )
    for template in folder.glob("*.template.json"):
        made_of.write_text(fingerprint)
        return template, False
    raise DemoFailed(f"the synthesis left no template in {folder}")


def _fingerprint(root: Path) -> str:
    packages = [one for name in ("aws-cdk-lib", "constructs") for one in distributions(name=name)]
    versions = [f"{one.name}=={one.version}" for one in packages]
    digest = hashlib.sha256(repr((_SETTINGS, versions)).encode())
    for path in _files(root):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    yield root / "cdk.json"
    for name in _SOURCES:
        for path in sorted((root / name).rglob("*")):
            parts = path.relative_to(root).parts
            deployed = name != "xorack" or parts[1] not in _NOT_DEPLOYED
            if path.is_file() and deployed and "__pycache__" not in parts:
                yield path
