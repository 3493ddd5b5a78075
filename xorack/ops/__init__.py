"""Tools for operators: the status of chains, watching and changing them, dead letters."""
