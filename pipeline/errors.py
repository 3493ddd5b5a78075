"""Errors of the jobs."""

__all__ = ["JobError", "UnreadableFile"]


class JobError(Exception):
    """An invalid argument or folder; the message names it in one line."""


class UnreadableFile(Exception):
    """A file without readable words; the message says why in one line, without the path."""
