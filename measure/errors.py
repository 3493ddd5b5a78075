"""Errors that stop a measurement. Their messages are for the user to read."""

from __future__ import annotations

from xorack.core.errors import XorAckError


class MeasureFailed(XorAckError):
    """The measurement cannot continue; the message names the cause."""
