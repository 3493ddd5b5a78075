"""What clients in every language do, as data."""
