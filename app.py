"""The CDK app of `cdk deploy` and `make deploy`."""

from __future__ import annotations

import sys

from infra.synth import main

if __name__ == "__main__":
    # The CDK's CLI passes settings in the environment.
    sys.exit(main([]))
