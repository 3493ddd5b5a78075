"""What a chain is and does. Pure: no I/O, and no import of any other folder."""
