"""The app, for the CDK's CLI, the tests and the embedded AWS.

`python -m infra.synth --out cdk.out -c batch_size=100` prints the template's path.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from aws_cdk import App

from infra.settings import StackSettings
from infra.stack import XorackStack
from xorack.core.errors import StateError

_REPRODUCIBLE: Final[Mapping[str, Any]] = {"tree_metadata": False, "stack_traces": False}
"""Without these, an assembly has paths of temporary folders: no two syntheses are equal."""
ROOT: Final = Path(__file__).resolve().parent.parent


def build(
    context: Mapping[str, object] | None = None, outdir: Path | None = None
) -> tuple[App, XorackStack]:
    """Build the app and its stack, without synthesis.

    Args:
        context: Settings and CDK context. They override cdk.json; the CDK's CLI overrides both.
        outdir: Folder of the assembly; by default the CLI's, or else a temporary one.
    """
    app = app_in(outdir, context)
    return app, XorackStack(app, StackSettings.from_context(app.node.get_all_context()))


def app_in(outdir: Path | None, context: Mapping[str, object] | None) -> App:
    """Return an app without stacks, whose assembly goes into a folder."""
    # Without the CDK's CLI, nobody else reads cdk.json.
    defaults: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    folder = None if outdir is None else str(outdir)
    return App(context={**defaults, **(context or {})}, outdir=folder, **_REPRODUCIBLE)


def synth(outdir: Path, context: Mapping[str, object] | None = None) -> Path:
    """Synthesise the stack offline into a folder, as `build` does; return the template's path.

    It takes some 5 seconds the first time in a process, and 50 the first time on a machine.
    """
    app, stack = build(context, outdir)
    return Path(app.synth().get_stack_by_name(stack.stack_name).template_full_path)


Make: TypeAlias = Callable[[Path, Mapping[str, str]], Iterable[Path]]
"""Writes files into a folder with settings, and returns their paths."""


def main(
    arguments: Sequence[str] | None = None,
    make: Make = lambda outdir, context: [synth(outdir, context)],
) -> int:
    """Run the command line; return the exit status: 0, or 2 for an invalid setting or package."""
    parser = argparse.ArgumentParser(description=sys.modules[make.__module__].__doc__)
    parser.add_argument("--out", type=Path, help="the folder; the paths of its files are printed")
    parser.add_argument(
        "-c", "--context", action="append", default=[], metavar="NAME=VALUE", help="a setting"
    )
    options = parser.parse_args(arguments)
    for pair in options.context:
        if "=" not in pair:
            parser.error(f"-c {pair}: expected NAME=VALUE")
    outdir = options.out or Path(os.environ.get("CDK_OUTDIR", "cdk.out"))
    try:
        made = list(make(outdir, dict(pair.split("=", 1) for pair in options.context)))
    except (ValueError, StateError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.out:  # the output of `cdk ls` and the like is their own
        print(*made, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
