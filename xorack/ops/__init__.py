"""Tools for operators: chain status, watching, redriving."""
