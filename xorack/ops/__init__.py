"""What operators use: the status of chains, watching them, dead letters, the dashboard page."""
