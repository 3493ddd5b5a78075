"""Comparison of two datasets: the report of both engines, and the engine for files, on DuckDB."""
