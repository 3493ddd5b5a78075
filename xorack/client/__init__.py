"""What producers use: `Tracker`, fan-in, and the names of units."""
