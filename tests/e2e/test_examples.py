"""The examples run as a reader would run them."""

import pytest

from tests.e2e.conftest import python


@pytest.mark.embedded
def test_track_orders_names_the_line_that_is_missing():
    done = python("-m", "examples.track_orders")
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[-3:] == [
        "a worker: oil is out of stock",
        "order/17 acked",
        "order/18 failed timed out oil",
    ]
