"""Errors of the jobs."""


class JobError(Exception):
    """An invalid argument or folder; the message names it in one line."""


class UnreadableFile(Exception):
    """A file whose words cannot be read; the message says why in one line, without the path."""
