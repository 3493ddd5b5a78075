"""Keeps the frames that were passed to `evidence`, so that a failing `finish` can name rows.

`finish` computes the frames again. The frames belong to a `Tracking`, and are freed with it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_FRAMES = 8
"""Most frames that are kept for a name, because `finish` tries each combination of them."""


class _Job(NamedTuple):
    """The frames of a job, the last one first, with the job's begin and its time until finish."""

    frames: tuple[DataFrame, ...] = ()
    began: float = 0.0
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class JobFrames:
    """The frames of the current job, by the name of the rows."""

    _jobs: dict[str, _Job] = field(default_factory=dict)

    def remember(self, name: str, frame: DataFrame | None) -> None:
        """Keep a frame whose rows go into an output, or None if the frame is unknown."""
        before = self._jobs.get(name, _Job())
        if before.seconds is not None or not before.frames:  # a new job
            before = _Job(began=time.monotonic())
        others = tuple(other for other in before.frames if other is not frame)
        frames = () if frame is None else (frame, *others)[:MAX_FRAMES]
        self._jobs[name] = before._replace(frames=frames)

    def end(self, name: str) -> None:
        """Note that finish was called, so that the next frame begins another job."""
        job = self._jobs.get(name)
        if job is not None and job.seconds is None:
            self._jobs[name] = job._replace(seconds=time.monotonic() - job.began)

    def forget(self, name: str) -> None:
        """Forget the frames of an output that agrees, because a later output has other frames."""
        self._jobs.pop(name, None)

    def frames(self, name: str) -> tuple[DataFrame, ...]:
        """Return the frames of the last job, the last frame first."""
        return self._jobs.get(name, _Job()).frames

    def seconds(self, name: str) -> float | None:
        """Return the time from the first call of evidence to finish, or None before finish."""
        return self._jobs.get(name, _Job()).seconds
