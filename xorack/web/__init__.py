"""HTML: the page of `xorack web` on this machine."""
