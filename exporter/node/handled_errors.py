"""Which errors a program survived: by the exit code of its job, else by what its log prints behind them.

A job that ended with exit code 0 handled its errors, unless a signal or the OOM killer ended one of its processes: a shell
script may end well after that. Without an exit code, an error was the program's end only if it prints nothing ordinary
behind it. Knows no files and no clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.job_files import NodeJob
from exporter.core.diagnosis.deaths import ends_process, is_observed, may_be_survived
from exporter.core.diagnosis.links import is_of_process
from exporter.core.model import Incident, Match


class HandledErrors:
    """Decides for the open incidents of a node. Call it with an incident."""

    def __init__(
        self,
        catalogue: Catalogue,
        job_of: Callable[[Incident], NodeJob | None],
        went_on: Callable[[Match], bool],
        incidents: Callable[[], Iterable[Incident]],
    ) -> None:
        """job_of: the job of an incident, as the scheduler's hooks know it. went_on: whether a line's program printed more."""
        self._catalogue = catalogue
        self._job_of = job_of
        self._went_on = went_on
        self._incidents = incidents

    def __call__(self, incident: Incident) -> bool:
        of_job = incident.first.source == "job"
        if self._ends_process(incident) or not (of_job or is_of_process(incident, self._catalogue)):
            return False
        job = self._job_of(incident)
        if job is not None and job.ended_well is not None:
            return job.ended_well and not self._has(job, self._ends_process)
        if is_observed(incident):
            return True
        if not may_be_survived(incident, self._catalogue):
            return False
        return self._went_on(incident.first) and not (job and self._has(job, self._is_of_kernel))

    def _has(self, job: NodeJob, what: Callable[[Incident], bool]) -> bool:
        return any(what(incident) and self._job_of(incident) == job for incident in self._incidents())

    def _ends_process(self, incident: Incident) -> bool:
        return ends_process(incident, self._catalogue)

    def _is_of_kernel(self, incident: Incident) -> bool:
        return is_of_process(incident, self._catalogue)
