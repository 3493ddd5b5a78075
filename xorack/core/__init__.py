"""Chains, requests, messages and events. Pure: no I/O, and no import of any other folder."""
