"""What can go wrong with the embedded AWS."""

from __future__ import annotations

from xorack.core.errors import XorAckError


class LocalError(XorAckError):
    """The embedded AWS, or something in it, could not be had. The message is for a user to read."""


class EnvironmentFailed(LocalError):
    """The virtual environment of the embedded AWS could not be made."""


class PortTaken(LocalError):
    """The port asked for belongs to another program."""


class StartFailed(LocalError):
    """The embedded AWS did not come up."""


class DeployFailed(LocalError):
    """The embedded AWS did not take the template."""
