"""The acker: it applies requests to chains, ends chains, and reports their ends.

It uses only ports.
"""
