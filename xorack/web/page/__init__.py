"""The page of `xorack web`: chains and dead-lettered messages in a browser, on this machine."""
