"""A load generator and judge for a deployed stack: ``python -m measure --stack NAME``.

The library does not import it, and the wheel does not hold it. docs/measure.md is its manual.
"""
