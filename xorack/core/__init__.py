"""Chains, requests, messages and events.

This folder is pure: it does no I/O, and imports no other folder.
"""
