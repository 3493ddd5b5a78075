"""The synthesised stack, kept until its sources change: synthesis is the demo's slowest step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from demo.children import Children
from demo.errors import DemoFailed

__all__ = ["SETTINGS", "cached_template", "synthesise"]

SETTINGS = {"max_concurrency": "2"}
"""The stack's settings: the defaults, with as many concurrent consumers as suit one machine."""

_SOURCES = ("infra", "lambda_src", "xorack")
_NOT_DEPLOYED = frozenset({"cli", "local", "spark"})
"""Folders of the library that are not in the functions' code."""
_FINGERPRINT = "made-of.json"


def cached_template(root: Path, folder: Path) -> Path | None:
    """Return the template if the folder has one of the checkout's sources as they are now."""
    try:
        kept = json.loads((folder / _FINGERPRINT).read_text())
        template = folder / str(kept["template"])
        valid = kept["made_of"] == _fingerprint(root) and template.is_file()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return template if valid else None


def synthesise(root: Path, folder: Path, children: Children) -> Path:
    """Synthesise the checkout's stack into an emptied folder, and return the template.

    Raises:
        DemoFailed: The synthesis failed.
    """
    made_of = _fingerprint(root)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    context = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    output = children.run(
        [sys.executable, "-m", "infra.synth", "--out", str(folder), *context],
        cwd=root,
        environ=os.environ,
        log=folder.with_name("synth.log"),
    )
    template = Path(output.splitlines()[-1]) if output else folder
    if not template.is_file():
        raise DemoFailed(f"the synthesis left no template in {folder}")
    kept = {"made_of": made_of, "template": os.path.relpath(template, folder)}
    (folder / _FINGERPRINT).write_text(json.dumps(kept))
    return template


def _fingerprint(root: Path) -> str:
    packages = [one for name in ("aws-cdk-lib", "constructs") for one in distributions(name=name)]
    versions = [f"{one.name}=={one.version}" for one in packages]
    digest = hashlib.sha256(repr((SETTINGS, versions)).encode())
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
