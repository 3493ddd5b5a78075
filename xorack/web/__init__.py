"""HTML: the page of `xorack web` on this machine, and the report of `xorack diff`."""
