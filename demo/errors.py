"""What stops the demo, said for its user."""

from __future__ import annotations

from xorack.core.errors import XorAckError

__all__ = ["BadDatabase", "DemoFailed"]


class DemoFailed(XorAckError):
    """The demo cannot go on; the message names the thing that is wrong."""


class BadDatabase(DemoFailed):
    """The folder that the user named is no database."""
