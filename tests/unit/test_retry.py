"""Back-off with full jitter, without any waiting."""

from xorack.aws.retry import RetryPolicy
from xorack.core.budget import UNLIMITED, Budget


def waits_of(budget=UNLIMITED, **options):
    """Return the waits of an operation that always fails."""
    waits = []
    options.setdefault("draw", lambda: 1.0)
    retry = RetryPolicy(sleep=waits.append, **options).start(budget)
    while retry.again():
        assert retry.waited_seconds == waits[-1]
    assert retry.attempt == len(waits) + 1
    return waits


def test_waits_grow_up_to_the_cap_and_are_a_random_part_of_it():
    assert waits_of(attempts=6, base_seconds=0.1, cap_seconds=0.5) == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert len(waits_of(attempts=2000)) == 1999
    draws = iter([0.5, 0.25])
    assert waits_of(attempts=3, base_seconds=1, draw=lambda: next(draws)) == [0.5, 0.5]


def test_a_wait_leaves_time_for_an_attempt():
    left = iter([1.0, 0.5, 0.2, 0.0])
    assert waits_of(Budget(lambda: next(left)), base_seconds=0.1, cap_seconds=9) == [0.1, 0.2, 0.1]
