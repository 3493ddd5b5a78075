"""The outbox: reports the ends of chains, and marks what was reported.

An end is an event on a bus, a callback of what waits for the chain, and a finished or failed unit
of its parents. The state is written first, with the deliveries still pending. Every reader of a
pending delivery makes it, so a crash in between loses none: docs/adr/0003-pending-events.md. So
nothing here has to succeed: what is not reported stays pending, and the sweeper delivers it.

A refusal is not an outage: the service is well, and the chain waits longer.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.parallel import Workers
from xorack.acker.parents import give_ends
from xorack.aws.log import log_failures
from xorack.core.chain import EVENT, PARENTS, Chain
from xorack.core.ports import NO_TIME, Failure, Publisher

_CIRCUIT_OPEN = Failure("outage", "not tried: the circuit is open after earlier failures")


@dataclass
class ReportResults:
    """What became of the reports of some chains' ends.

    Attributes:
        pending: Chains of which something has to be reported at the next sweep, by tag.
        refused: Chains of which a service refuses something: tag to report to failure.
        reported: Chains of which something was reported: tag to publishers.
        alerts: Refusals that an operator should know of: the first on a report, and the last.
        parents: Chains that have ended because their last outstanding unit was one of the chains.
        dropped: Ends that are older than the retention and whose parent does not exist.
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
        writer: Marks what was reported. Its budget bounds everything.
        publishers: A publisher for each of `Chain.pending_reports` that this process can make.
            The command line has none for callbacks: it leaves them to the sweeper.
        workers: The threads of calls, also for the consumer and the sweeper.
        breakers: Hold calls of a report back while it fails.
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

    def publish(self, chains: Sequence[Chain], only: str | None = None) -> ReportResults:
        """Report ends of finished chains, on one report or all, as long as there is time.

        What ends by this, because its last outstanding unit was one of the chains, is reported too.
        """
        reports = ReportResults()
        while chains:
            assert all(chain.final for chain in chains), "only ends are reported"
            some = self._publish(chains, only)
            self._mark(chains, some)
            reports.merge(some)
            chains = some.parents if self.writer.has_time() else []
        return reports

    def _publish(self, chains: Sequence[Chain], only: str | None) -> ReportResults:
        waiting: dict[str, list[Chain]] = defaultdict(list)
        # Acked ones go first: it takes long to name the outstanding units of failed ones.
        for chain in sorted(chains, key=lambda chain: chain.status == "failed"):
            for report in chain.due_reports(self.writer.now()):
                if report in (PARENTS, *self.publishers) and only in (None, report):
                    waiting[report].append(chain)
        reports = ReportResults()
        # No parent waits for a service.
        for report in sorted(waiting, key=lambda report: (report != PARENTS, report)):
            some = waiting[report]
            if report == PARENTS:
                given = give_ends(self.writer, self.workers, some)
                reports.parents, reports.dropped = given.ended, given.dropped
                reasons = {tag: failure.reason for tag, failure in given.failures.items()}
                log_failures(logging.WARNING, "parents not written", reasons)
                reports.add(report, some, given.failures)
            else:
                reports.add(report, some, self._deliver(report, some))
        return reports

    def _deliver(self, report: str, chains: Sequence[Chain]) -> dict[str, Failure]:
        """Report ends on one report; return the failures."""
        size = self.publishers[report].batch_size
        batches = [(report, chains[at : at + size]) for at in range(0, len(chains), size)]
        failures: dict[str, Failure] = {}
        for failed in self.workers.map(self._publish_batch, batches):
            failures.update(failed)
        outages, refused = "events not published", "events refused"
        if report != EVENT:
            outages, refused = f"{report}: not resumed", f"{report}: refused"
        for message, kinds in ((outages, ("outage", "no_time")), (refused, ("refused",))):
            reasons = {tag: one.reason for tag, one in failures.items() if one.kind in kinds}
            log_failures(logging.ERROR, message, reasons)
        return failures

    def _publish_batch(self, batch: tuple[str, Sequence[Chain]]) -> dict[str, Failure]:
        """Make one call of a report; return the failures."""
        report, chains = batch
        if not self.writer.has_time():
            return dict.fromkeys([chain.tag for chain in chains], NO_TIME)
        breaker = self.breakers[report]
        if not breaker.allows():
            return dict.fromkeys([chain.tag for chain in chains], _CIRCUIT_OPEN)
        failures = self.publishers[report].publish(chains)
        kinds = {failure.kind for failure in failures.values() if not failure.is_answer}
        answered = len(chains) > sum(not one.is_answer for one in failures.values())
        if answered or "outage" in kinds:
            breaker.record(success=answered)
        return failures

    def _mark(self, chains: Sequence[Chain], reports: ReportResults) -> None:
        """Mark what was reported or refused, else it is reported again; count the alerts."""

        def mark(chain: Chain) -> Chain | Failure:
            if not self.writer.has_time():
                return NO_TIME
            reported, refused = reports.reported.get(chain.tag), reports.refused.get(chain.tag)
            try:
                return self.writer.mark_reported(chain, reported or (), refused or {})
            except Exception as error:  # noqa: BLE001 - the others are marked all the same
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
            if ended and new.resume_failed and not any(one.kind == "gone" for one in answers):
                given_up[before.tag] = new.resume_failed
        reports.alerts += len(given_up)
        log_failures(logging.WARNING, "events still marked as pending", unmarked)
        log_failures(logging.ERROR, "the callback was abandoned after 24 hours", given_up)
