"""The CDK app: `cdk deploy`, or `make deploy`."""

from __future__ import annotations

import sys

from infra.synth import main

if __name__ == "__main__":
    # Settings come from the CDK's CLI, through its environment.
    sys.exit(main([]))
