"""The model of a chain: the set of requests that took effect, and what follows from it."""

from dataclasses import dataclass, field

from tests.simulation.workload import ChainWorkload, Submission
from xorack.core.marks import MARK_BYTES, mark_of

Item = dict[str, dict]
UNMUTATED_MARK_OF = mark_of


def number(item: Item | None, name: str) -> int | None:
    return int(item[name]["N"]) if item and name in item else None


def text(item: Item | None, name: str) -> str | None:
    return item[name]["S"] if item and name in item else None


def binary(item: Item | None, name: str) -> bytes:
    return bytes(item[name]["B"]) if item and name in item else b""


def marks(item: Item | None) -> list[bytes]:
    data = binary(item, "marks")
    return [data[at : at + MARK_BYTES] for at in range(0, len(data), MARK_BYTES)]


def deadline_of(item: Item | None) -> int | None:
    """Return when an unfinished chain must end, by its deadline or its idle time-out."""
    idle, last = number(item, "idle_timeout"), number(item, "last_stamp_at")
    idle_deadline = None if idle is None or last is None else last + idle
    times = (number(item, "deadline"), idle_deadline)
    return min((time for time in times if time is not None), default=None)


@dataclass(eq=False)
class Model:
    """The expected state of one chain.

    Attributes:
        applied: Requests that took effect, by id.
        repeated: Requests that took effect under an id that was used before.
        outstanding: Units started or finished an odd number of times.
        item: The item as last written.
        final: The item as it was when the chain ended.
        event: The detail of its event.
    """

    workload: ChainWorkload
    applied: dict[str, Submission] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    stamp: int = 0
    counts: tuple[int, int] = (0, 0)
    outstanding: frozenset[int] = frozenset()
    create: Submission | None = None
    fail_reasons: list[str] = field(default_factory=list)
    extended: bool = False
    item: Item | None = None
    final: Item | None = None
    event: dict | None = None

    def __post_init__(self) -> None:
        submissions = self.workload.submissions
        self.by_mark = {UNMUTATED_MARK_OF(one.request): one for one in submissions if one.request}

    def apply(self, one: Submission) -> None:
        """Record that a request took effect."""
        request = one.request
        if request.id in self.applied:
            self.repeated.append(f"{one.name} after {self.applied[request.id].name}")
        self.applied[request.id] = one
        self.stamp ^= int.from_bytes(request.stamp or b"", "little")
        self.counts = (self.counts[0] + request.started, self.counts[1] + request.finished)
        self.outstanding ^= one.units
        if request.op == "create":
            self.create = one
        elif request.op == "fail":
            self.fail_reasons.append(request.reason or "fail was asked")
        elif request.op == "extend":
            self.extended = True

    @property
    def status(self) -> str:
        """The status that the applied requests give."""
        if self.create is None:
            return "pending"
        if self.fail_reasons:
            return "failed"
        started, finished = self.counts
        return "open" if self.outstanding or started != finished else "acked"

    @property
    def end(self) -> str:
        """How the chain ended: reason or status."""
        return text(self.final, "reason") or text(self.final, "status") or "open"

    def conflicts_with(self, one: Submission) -> str:
        """Return why a request that did not take effect must be rejected; "" if it need not be."""
        if one.request.id in self.applied:
            return "its id was used"
        return "a second create" if one.request.op == "create" and self.create else ""
