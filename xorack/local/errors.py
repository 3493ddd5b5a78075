"""Errors of the embedded AWS. Their messages are for the user to read."""

from __future__ import annotations

from xorack.core.errors import XorAckError


class LocalError(XorAckError):
    """The parent of the errors of this package."""


class EnvironmentFailed(LocalError):
    """The installation of ministack's virtual environment failed."""


class PortTaken(LocalError):
    """Another program listens on the requested port."""


class StartFailed(LocalError):
    """The embedded AWS did not start."""


class DeployFailed(LocalError):
    """The deployment of a template failed."""


class SynthesisFailed(LocalError):
    """The synthesis of the stack failed."""


class NotRunning(LocalError):
    """No embedded AWS runs in the background."""
