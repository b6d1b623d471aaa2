"""Jobs that use a GPU while their logs are silent: hangs print nothing.

Produces only matches of the context signature `job_silent`. They may explain a later crash, such as a collective's timeout,
but are not incidents: many programs print nothing for hours.
"""

from collections.abc import Collection, Mapping

from exporter.core.model import Match
from exporter.sources.node_jobs import LastWrite

JOB_SILENT = "job_silent"
POLL_SECONDS = 30.0  # as often as processes are searched


class SilentJobs:
    """Reports each silence once. Silences that exceeded the limit before the start are not reported."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._polled_at = started
        self._reported: dict[str, float] = {}  # the last write before the reported silence, by job

    def poll(
        self, now: float, after: float | None, using_gpus: Collection[str], writes: Mapping[str, LastWrite]
    ) -> list[Match]:
        """Matches of newly silent jobs. using_gpus: jobs, named as in `writes`, whose processes have a GPU open."""
        if after is None or not 0 <= now - self._polled_at < float("inf") or now - self._polled_at < POLL_SECONDS:
            return []
        self._polled_at = now
        self._reported = {job: time for job, time in self._reported.items() if job in using_gpus}
        matches = []
        for job in sorted(using_gpus):
            write = writes.get(job)
            if write is None or now - write.time < after or write.time + after < self._started:
                continue
            if self._reported.get(job) == write.time:
                continue
            self._reported[job] = write.time
            matches.append(_match(write, now))
        return matches


def _match(write: LastWrite, now: float) -> Match:
    seconds = f"{now - write.time:.0f}"
    return Match(
        signature=JOB_SILENT,
        source="job",
        origin=write.origin,
        path=write.path,
        line=write.line,
        offset=write.offset,
        time=now,
        time_source="observed",
        read_at=now,
        text=f"gpufault: job {write.job.id} uses a GPU, but its log has been silent for {seconds} s",
        captures={"job": write.job.id, "seconds": seconds},
        job=write.job,
    )
