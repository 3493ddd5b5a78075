"""The API for producers and workers: `Tracker`, fan-in, fan-out, and the names of units."""
