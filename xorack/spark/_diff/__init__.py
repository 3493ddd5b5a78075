"""Differences of two datasets; `xorack.spark.diff` is the one name for users."""
