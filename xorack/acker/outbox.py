"""The outbox: reports the ends of chains, and marks the reports that were made.

A report is the event on the bus, the callback, or the request to a parent chain. The write that
ends a chain marks its reports as pending, and every reader of a pending report makes it. A crash
between the two loses no report (docs/adr/0003-pending-events.md). So nothing here has to succeed: a
report that fails stays pending, and the sweeper makes it.

A refusal is not an outage: the service works, and only the refused chain waits longer.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.parallel import Workers
from xorack.acker.parents import apply_ends
from xorack.aws.log import log_failures
from xorack.core.chain import EVENT, PARENTS, Chain
from xorack.core.ports import NO_TIME, Failure, Publisher

_CIRCUIT_OPEN = Failure("outage", "not tried: the circuit is open after earlier failures")


@dataclass
class ReportResults:
    """The results of reports, by chain.

    Attributes:
        pending: Chains with a report that the next sweep has to make, by tag.
        refused: Chains with a report that a service refused: tag to report to failure.
        reported: Chains with a report that was made: tag to reports.
        alerts: The refusals that operators need to know: the first of a report, and the last.
        parents: Parent chains that ended because one of these chains was their last unit.
        dropped: The number of ends that no parent got because they are older than the retention.
    """

    pending: dict[str, Failure] = field(default_factory=dict)
    refused: dict[str, dict[str, Failure]] = field(default_factory=lambda: defaultdict(dict))
    reported: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    alerts: int = 0
    parents: list[Chain] = field(default_factory=list)
    dropped: int = 0

    def merge(self, other: ReportResults) -> None:
        self.pending |= other.pending
        self.refused |= other.refused
        self.reported |= other.reported
        self.alerts += other.alerts
        self.parents += other.parents
        self.dropped += other.dropped

    def add(self, report: str, chains: Sequence[Chain], failures: Mapping[str, Failure]) -> None:
        for chain in chains:
            failure = failures.get(chain.tag)
            if failure is None:
                self.reported[chain.tag].append(report)
            elif failure.is_answer:
                self.refused[chain.tag][report] = failure
            else:
                self.pending[chain.tag] = failure


class Outbox:
    """Reports the ends of chains.

    Attributes:
        writer: Marks the reports that were made. All calls stay within the writer's time budget.
        publishers: A publisher for each of `Chain.pending_reports` that this process can make. The
            command line has no publisher for callbacks: it leaves callbacks to the sweeper.
        workers: The threads for calls. The consumer and the sweeper use them, too.
        breakers: Stop the calls of a kind of report while its service fails.
    """

    def __init__(
        self,
        writer: ChainWriter,
        publishers: Mapping[str, Publisher],
        *,
        workers: Workers | None = None,
        breakers: Mapping[str, CircuitBreaker] | None = None,
    ) -> None:
        self.writer = writer
        self.publishers = publishers
        self.workers = workers or Workers()
        self.breakers = breakers or {name: CircuitBreaker() for name in publishers}

    def seconds_left(self) -> float:
        return self.writer.seconds_left()

    def publish(
        self, chains: Sequence[Chain], only: str | None = None, reserve: float = 0.0
    ) -> ReportResults:
        """Make the reports of ended chains while there is time. `only` limits them to one kind.

        No service is called when only `reserve` seconds are left.
        If a chain was the last unit of a parent chain, the parent's end is reported too.
        """
        reports = ReportResults()
        while chains:
            assert all(chain.final for chain in chains), "only ends are reported"
            results = self._publish(chains, only, reserve)
            self._mark(chains, results)
            reports.merge(results)
            chains = results.parents if self.writer.has_time() else []
        return reports

    def _publish(self, chains: Sequence[Chain], only: str | None, reserve: float) -> ReportResults:
        waiting: dict[str, list[Chain]] = defaultdict(list)
        # Acked chains come first: naming the outstanding units of failed chains takes longer.
        for chain in sorted(chains, key=lambda chain: chain.status == "failed"):
            for report in chain.due_reports(self.writer.now()):
                if report in (PARENTS, *self.publishers) and only in (None, report):
                    waiting[report].append(chain)
        reports = ReportResults()
        # Parents come first, so that they do not wait for a service.
        for report in sorted(waiting, key=lambda report: (report != PARENTS, report)):
            due = waiting[report]
            if report == PARENTS:
                applied = apply_ends(self.writer, self.workers, due)
                reports.parents, reports.dropped = applied.ended, applied.dropped
                reasons = {tag: failure.reason for tag, failure in applied.failures.items()}
                log_failures(logging.WARNING, "parents not written", reasons)
                reports.add(report, due, applied.failures)
            else:
                reports.add(report, due, self._deliver(report, due, reserve))
        return reports

    def _deliver(self, report: str, chains: Sequence[Chain], reserve: float) -> dict[str, Failure]:
        """Make one kind of report for several chains; return the failures by tag."""
        size = self.publishers[report].batch_size
        batches = [chains[at : at + size] for at in range(0, len(chains), size)]
        failures: dict[str, Failure] = {}
        for failed in self.workers.map(partial(self._publish_batch, report, reserve), batches):
            failures.update(failed)
        outages, refused = "events not published", "events refused"
        if report != EVENT:
            outages, refused = f"{report}: not resumed", f"{report}: refused"
        for message, kinds in ((outages, ("outage", "no_time")), (refused, ("refused",))):
            reasons = {tag: each.reason for tag, each in failures.items() if each.kind in kinds}
            log_failures(logging.ERROR, message, reasons)
        return failures

    def _publish_batch(
        self, report: str, reserve: float, chains: Sequence[Chain]
    ) -> dict[str, Failure]:
        """Make one call of a publisher; return the failures by tag."""
        if self.seconds_left() <= reserve:
            return dict.fromkeys([chain.tag for chain in chains], NO_TIME)
        breaker = self.breakers[report]
        if not breaker.allows():
            return dict.fromkeys([chain.tag for chain in chains], _CIRCUIT_OPEN)
        failures = self.publishers[report].publish(chains)
        kinds = {failure.kind for failure in failures.values() if not failure.is_answer}
        answered = len(chains) > sum(not each.is_answer for each in failures.values())
        if answered or "outage" in kinds:
            breaker.record(success=answered)
        return failures

    def _mark(self, chains: Sequence[Chain], reports: ReportResults) -> None:
        """Mark the reports that were made or refused, so that they are not repeated at once."""

        def mark(chain: Chain) -> Chain | Failure:
            if not self.writer.has_time():
                return NO_TIME
            reported, refused = reports.reported.get(chain.tag), reports.refused.get(chain.tag)
            try:
                return self.writer.mark_reported(chain, reported or (), refused or {})
            except Exception as error:  # noqa: BLE001 - the other chains are still marked
                return Failure("outage", f"{type(error).__name__}: {error}")

        changed = [c for c in chains if c.tag in reports.reported or c.tag in reports.refused]
        unmarked, given_up = {}, {}
        for before, after in zip(changed, self.workers.map(mark, changed), strict=True):
            if isinstance(after, Failure):
                unmarked[before.tag] = after.reason
                continue
            new = after.reports
            reports.alerts += len(new.refusals.keys() - before.reports.refusals.keys())
            ended = before.reports.resume_pending and not new.resume_pending
            answers = reports.refused.get(before.tag, {}).values()
            if ended and new.resume_failed and not any(each.kind == "gone" for each in answers):
                given_up[before.tag] = new.resume_failed
        reports.alerts += len(given_up)
        log_failures(logging.WARNING, "events still marked as pending", unmarked)
        log_failures(logging.ERROR, "the callback was abandoned after 24 hours", given_up)
