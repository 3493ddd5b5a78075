"""Windows over a log: "may I close hour 14?". `ledger` decides this without Spark and I/O."""
