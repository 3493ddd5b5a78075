"""Back-off with full jitter, without any waiting."""

from xorack.core.retry import RetryPolicy


def test_waits_are_drawn_from_a_growing_span_up_to_the_cap():
    waits = []
    retry = RetryPolicy(attempts=6, base=0.1, cap=0.5, sleep=waits.append, draw=lambda: 1.0).start()
    while retry.again():
        pass
    assert waits == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert retry.attempt == 6


def test_no_wait_goes_beyond_the_time_left():
    waits = []
    left = iter([1.0, 0.05])
    policy = RetryPolicy(
        base=0.1, cap=9, sleep=waits.append, draw=lambda: 1.0, time_left=lambda: next(left)
    )
    retry = policy.start()
    assert retry.again()
    assert not retry.again()
    assert waits == [0.1]


def test_a_hundred_tries_do_not_overflow():
    retry = RetryPolicy(attempts=2000, sleep=lambda s: None).start()
    while retry.again():
        pass
    assert retry.attempt == 2000
