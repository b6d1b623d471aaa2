"""Which jobs run on this node, as their logs show: decides whether a kernel line can only concern one job."""

from __future__ import annotations

from collections.abc import Iterable

LATELY_SECONDS = 3600.0  # a job that has written nothing for so long has ended, or hangs; collectives time out sooner
COUNTED_EVERY_SECONDS = 10.0


class NodeJobs:
    """The jobs of all sources of a daemon, by source name."""

    def __init__(self) -> None:
        self._by_source: dict[str, set[str]] = {}

    def count(self, source: str, jobs: Iterable[str]) -> None:
        """Set the jobs of one source that have written to a log recently."""
        self._by_source[source] = set(jobs)

    def add(self, source: str, job: str) -> None:
        """Add a job that is writing now."""
        self._by_source.setdefault(source, set()).add(job)

    def several(self) -> bool:
        """Whether several jobs run on the node."""
        return len(set().union(*self._by_source.values())) > 1

    def others_than(self, job: str) -> bool:
        """Whether another job runs on the node."""
        return any(not jobs <= {job} for jobs in self._by_source.values())
