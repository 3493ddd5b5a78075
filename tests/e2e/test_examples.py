"""The examples run as a reader would run them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.embedded
def test_track_orders_names_the_line_that_is_missing():
    done = subprocess.run(
        [sys.executable, "-m", "examples.track_orders"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[-3:] == [
        "a worker: oil is out of stock",
        "order/17 acked",
        "order/18 failed timed out oil",
    ]
