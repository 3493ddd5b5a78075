"""Back-off with full jitter, without any waiting."""

import pytest

from xorack.core.retry import Crowd, RetryPolicy


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


def test_the_more_others_were_faster_the_longer_the_next_wait():
    waits = []
    policy = RetryPolicy(base=0.1, cap=99, sleep=waits.append, draw=lambda: 1.0)
    retry = policy.start()
    for others in (1, 1, 5, 1):
        retry.again(others)
    assert waits == [0.1, 0.2, 0.4, 3.2]
    assert retry.waited == 3.2


def test_waits_grow_with_what_a_try_takes_that_others_are_faster_than():
    waits = []
    now = [0.0]
    policy = RetryPolicy(
        base=0.1, cap=5, sleep=waits.append, draw=lambda: 1.0, clock=lambda: now[0]
    )
    crowd = Crowd()
    retry = policy.start(crowd)
    for took in (0.05, 1.0, 1.0, 9.0):
        now[0] += took
        retry.again(1)
    assert waits == pytest.approx([0.1, 2.0, 4.0, 5.0])
    assert (crowd.level, crowd.took) == (3, pytest.approx(9.0))
    waits.clear()
    other = policy.start()
    now[0] += 3
    other.again()  # no others: an answer that did not come, say
    assert waits == [0.1]


def test_a_crowd_is_remembered_and_forgotten_step_by_step():
    waits = []
    policy = RetryPolicy(base=0.1, cap=9, sleep=waits.append, draw=lambda: 1.0)
    crowd = Crowd(2)
    for _ in range(3):
        retry = policy.start(crowd)
        retry.queue_up()
        retry.succeeded()
    assert waits == [0.4, 0.2]
    assert crowd.level == 0
    late = RetryPolicy(sleep=waits.append, draw=lambda: 1.0, time_left=lambda: 0.001)
    late.start(Crowd(5)).queue_up()
    assert len(waits) == 2
