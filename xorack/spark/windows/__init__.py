"""Windows over a log: "may I close hour 14?". `ledger` proves it, without Spark and without I/O."""
