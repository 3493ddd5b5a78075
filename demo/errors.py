"""Errors that stop the demo. Their messages are for the user to read."""

from __future__ import annotations

from xorack.core.errors import XorAckError


class DemoFailed(XorAckError):
    """The demo cannot continue; the message names the cause."""


class InvalidDatabase(DemoFailed):
    """The folder cannot be read, or has no text files."""
