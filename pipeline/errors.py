"""What stops a job, said in one line."""

from __future__ import annotations

__all__ = ["JobError"]


class JobError(Exception):
    """The job cannot be done; the message names the thing that is wrong, in one line."""
