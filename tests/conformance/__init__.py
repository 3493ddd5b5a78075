"""Scenarios that clients in every language must follow, as data."""
