"""The synthesised stack, kept until its sources change: synthesis is the demo's slowest step."""

from __future__ import annotations

from pathlib import Path

from demo.children import Children
from xorack.local import assembly

_SETTINGS = {"max_concurrency": "2", "resume": "all"}
"""The settings: as many concurrent consumers as suit one machine, and all kinds of resumption."""


def synthesise(root: Path, folder: Path, children: Children) -> tuple[Path, bool]:
    """Synthesise the checkout's stack into a folder unless it is there already.

    Returns:
        The template, and True if the folder already had the template of the current sources.

    Raises:
        DemoFailed: The synthesis failed.
        LocalError: It left no template.
    """
    return assembly.synthesise(root, folder, _SETTINGS, children.run)
