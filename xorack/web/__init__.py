"""The page of `xorack web` on this machine. All HTML is here."""
