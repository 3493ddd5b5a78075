"""What producers use: `Tracker`, `DynamoDBAcker`, and `Acker` in memory."""
