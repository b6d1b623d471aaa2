"""Which jobs run on this node, as far as their logs tell: whether a kernel line can be about one job only."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.core.model import Job

LATELY_SECONDS = 3600.0  # a job that has written nothing for so long has ended, or hangs; collectives time out sooner
COUNTED_EVERY_SECONDS = 10.0


class NodeJobs:
    """The jobs of all sources of a node, by name. One for all sources of a daemon."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[str, Job | None]] = {}

    def count(self, source: str, jobs: Mapping[str, Job | None]) -> None:
        """The jobs of one source that have written to a log lately."""
        self._by_source[source] = dict(jobs)

    def add(self, source: str, name: str, job: Job | None = None) -> None:
        """A job that writes now. None: its log tells only its owner or folder."""
        self._by_source.setdefault(source, {})[name] = job

    def several(self) -> bool:
        """Whether several jobs run on the node."""
        return len(set().union(*self._by_source.values())) > 1

    def others_than(self, job: str) -> bool:
        """Whether another job runs on the node."""
        return any(not jobs.keys() <= {job} for jobs in self._by_source.values())

    def only(self) -> Job | None:
        """The only job whose logs are written; None if there are several, or its id is unknown."""
        jobs = {name: job for found in self._by_source.values() for name, job in found.items()}
        return next(iter(jobs.values())) if len(jobs) == 1 else None
