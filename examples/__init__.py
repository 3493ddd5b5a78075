"""Examples, each run by a test."""
