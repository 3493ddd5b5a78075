"""The rows that an output lost: their names, if proved, and the values that they share."""
