"""The app, for the CDK's CLI, the tests and the embedded AWS alike.

From a shell::

    python -m infra.synth --out cdk.out -c batch_size=100

prints where the template is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aws_cdk import App

from infra.stack import XorackStack
from xorack.cdk.settings import SettingError, Settings, check_names

ROOT: Final = Path(__file__).resolve().parent.parent
DEFAULT_STACK_NAME: Final = "xorack"
_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")


def build(
    context: Mapping[str, object] | None = None, outdir: Path | None = None
) -> tuple[App, XorackStack]:
    """The app and its stack, not synthesised yet.

    Args:
        context: Settings and CDK context, on top of cdk.json's. What the CDK's CLI passes on comes
            before both.
        outdir: Where the assembly goes; by default where the CLI says, else a temporary folder.

    Returns:
        The app and the stack.

    Raises:
        SettingError: A setting makes no sense.
    """
    # The CLI passes cdk.json's context on; whoever runs Python directly would miss it.
    app = App(
        context={**cdk_json()["context"], **(context or {})},
        outdir=None if outdir is None else str(outdir),
        # Trees of construct metadata are for a browser that nobody here opens.
        tree_metadata=False,
    )
    given: dict[str, Any] = app.node.get_all_context()
    check_names(given, (*Settings.names(), "stack_name"))
    name = given.get("stack_name", DEFAULT_STACK_NAME)
    if not isinstance(name, str) or not _STACK_NAME.fullmatch(name):
        raise SettingError(
            "stack_name", name, "1 to 128 letters, digits and hyphens, a letter first"
        )
    return app, XorackStack(app, name, settings=Settings.from_context(given))


def synth(outdir: Path, context: Mapping[str, object] | None = None) -> Path:
    """Synthesise the stack, without any connection.

    Takes about five seconds the first time in a process, and some fifty the first time on a
    machine. The caller keeps the result.

    Args:
        outdir: Folder for the template and the functions' code; made if missing.
        context: Settings and CDK context, on top of cdk.json's.

    Returns:
        The template's path, in `outdir`.

    Raises:
        SettingError: A setting makes no sense.
    """
    app, stack = build(context, outdir)
    assembly = app.synth()
    return Path(str(assembly.get_stack_by_name(stack.stack_name).template_full_path))


def code_folder(template: Path) -> Path:
    """The folder with the functions' code that a synthesised template names.

    Args:
        template: What `synth` returned.

    Returns:
        The asset's folder, beside the template.

    Raises:
        ValueError: The assembly beside the template has not exactly one such folder.
    """
    manifest = json.loads(template.with_name(f"{_stem(template)}.assets.json").read_text())
    folders: list[Path] = [
        template.parent / file["source"]["path"]
        for file in manifest["files"].values()
        if file["source"]["packaging"] == "zip"
    ]
    if len(folders) != 1:
        raise ValueError(f"{template} has {len(folders)} folders of code: expected one")
    return folders[0]


def cdk_json() -> dict[str, Any]:
    """What cdk.json holds."""
    held: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))
    return held


def _stem(template: Path) -> str:
    return template.name.removesuffix(".template.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Synthesise from the command line.

    Args:
        arguments: The arguments; the process's by default.

    Returns:
        The exit status: 0, or 2 for a setting that makes no sense.
    """
    parser = argparse.ArgumentParser(prog="python -m infra.synth", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("CDK_OUTDIR", "cdk.out")))
    parser.add_argument(
        "-c", "--context", action="append", default=[], metavar="NAME=VALUE", help="a setting"
    )
    given = parser.parse_args(arguments)
    pairs = [pair.partition("=") for pair in given.context]
    for name, sign, _ in pairs:
        if not sign:
            parser.error(f"-c {name}: expected NAME=VALUE")
    try:
        print(synth(given.out, {name: value for name, _, value in pairs}))
    except SettingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
