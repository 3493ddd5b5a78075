"""The construct is typed strictly against the CDK."""

import subprocess
import sys

import pytest

from infra.synth import ROOT


@pytest.mark.slow
def test_the_types_of_the_cdk():
    """In the slow tests, because mypy takes some minutes to read the CDK's types."""
    subprocess.run(["make", "types-cdk", f"PYTHON={sys.executable}"], cwd=ROOT, check=True)
