"""Tools for operators: reading and changing chains, dead letters."""
