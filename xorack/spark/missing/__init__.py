"""The rows that an output lost: their names, proved or not given, and what they have in common."""
