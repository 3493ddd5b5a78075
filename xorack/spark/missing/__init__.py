"""The rows that an output lacks: their names, proved or not given, and what they have in common."""
