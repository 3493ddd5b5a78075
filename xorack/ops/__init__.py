"""Tools for operators: they read and change chains and dead letters."""
