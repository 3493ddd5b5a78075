"""The page of `xorack web`, which shows chains and dead letters in a browser on this machine."""
