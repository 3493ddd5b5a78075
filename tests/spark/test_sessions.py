"""The Connect session of the tests."""

from __future__ import annotations

from pyspark.sql import functions as F


def test_both_sessions_run_the_same_frame(each_session):
    frame = each_session.range(9).agg(F.bit_xor("id").alias("all"))
    assert frame.first()["all"] == 8
