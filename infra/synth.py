"""The CDK app, for the CDK's command line, the tests and the embedded AWS.

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
"""Without these settings, an assembly contains temporary paths, so that two syntheses differ."""
ROOT: Final = Path(__file__).resolve().parent.parent


def build(
    context: Mapping[str, object] | None = None, outdir: Path | None = None
) -> tuple[App, XorackStack]:
    """Build the app and its stack, without synthesis.

    Args:
        context: Settings and CDK context. They override cdk.json. The CDK's command line overrides
            both.
        outdir: The folder of the assembly. By default, the folder of the command line, or else a
            temporary folder.
    """
    app = app_in(outdir, context)
    return app, XorackStack(app, StackSettings.from_context(app.node.get_all_context()))


def app_in(outdir: Path | None, context: Mapping[str, object] | None) -> App:
    """Return an app without stacks whose assembly goes into this folder."""
    # Without the CDK's command line, cdk.json has to be read here.
    defaults: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    folder = None if outdir is None else str(outdir)
    return App(context={**defaults, **(context or {})}, outdir=folder, **_REPRODUCIBLE)


def synth(outdir: Path, context: Mapping[str, object] | None = None) -> Path:
    """Synthesise the stack offline into a folder, and return the template's path.

    The first synthesis of a process takes about 5 seconds, and the first one on a machine 50.
    """
    app, stack = build(context, outdir)
    return Path(app.synth().get_stack_by_name(stack.stack_name).template_full_path)


Make: TypeAlias = Callable[[Path, Mapping[str, str]], Iterable[Path]]
"""Writes files into a folder, given the settings, and returns their paths."""


def main(
    arguments: Sequence[str] | None = None,
    make: Make = lambda outdir, context: [synth(outdir, context)],
) -> int:
    """Run the command line. Return 0, or 2 if a setting or a package is invalid."""
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
    if options.out:  # commands such as `cdk ls` have an output of their own
        print(*made, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
