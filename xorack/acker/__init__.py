"""The acker: applies requests to chains, ends chains, and reports their ends. Uses only ports."""
