"""Run a campaign: `python -m tests.engines dynalite --seed 7`; status 1 if it finds something."""

import argparse
import os
import sys

from tests.engines.campaign import run
from tests.engines.engine import ENGINES, engine
from xorack.local.embedded import EmbeddedAWS
from xorack.local.isolation import isolated


def main() -> int:
    """Print the figures and the violations."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chains", type=int, default=54)
    parser.add_argument("--patience", type=float, default=60, help="seconds without progress")
    parser.add_argument("--broken", help="the name of a mutant of tests/simulation")
    options = parser.parse_args()
    environ = isolated(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    with EmbeddedAWS() as aws, engine(options.engine, aws) as url:
        given = {"seed": options.seed, "chains": options.chains, "broken": options.broken}
        evidence = run(aws, url, **given, patience=options.patience)
    print(evidence.figures, *evidence.violations, sep="\n")
    return bool(evidence.violations)


if __name__ == "__main__":
    sys.exit(main())
