"""Which jobs write to the logs of a source, and when each last did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from exporter.core.decoding.jobs import log_group, with_owner
from exporter.core.model import Job
from exporter.sources.files.tail import Log
from exporter.sources.node_jobs import COUNTED_EVERY_SECONDS, LATELY_SECONDS, LastWrite, NodeJobs


class LogJobs:
    """The jobs of one source, as it tells the node of them."""

    def __init__(self, source: str, node_jobs: NodeJobs, service_accounts: frozenset[int]) -> None:
        self._source = source
        self._node_jobs = node_jobs
        self._service_accounts = service_accounts  # users that write logs for others: their files tell no owner
        self._counted = -math.inf

    def uid_of(self, log: Log) -> int | None:
        """The user whose job writes to a log."""
        return None if log.stat.uid in self._service_accounts else log.stat.uid

    def job_of(self, log: Log) -> Job | None:
        return with_owner(log.job, log.stat.uid, self._service_accounts)

    def write(self, log: Log) -> bool:
        """The job of a log has written to it. Whether others share the node with that."""
        job = self.job_of(log)
        name = self._name_of(log, job)
        self._node_jobs.add(self._source, name, job)
        return self._node_jobs.others_than(name)

    def count(self, logs: Iterable[Log], time: float, now: float) -> None:
        """Count the jobs that have written to a log lately. A log's ctime says when: its user cannot set it."""
        if time - self._counted < COUNTED_EVERY_SECONDS:
            return
        self._counted, logs = time, list(logs)
        since = (now - LATELY_SECONDS) * 1e9
        running = [log for log in logs if max(log.stat.touched, log.position.modified) >= since]
        self._node_jobs.wrote(_new_writes(logs))
        jobs = {self._name_of(log, job): job for log in running for job in [self.job_of(log)]}
        self._node_jobs.count(self._source, jobs)

    def _name_of(self, log: Log, job: Job | None) -> str:
        """What tells a log's job from the others of the node. Of two users' logs that name none, each is a job's."""
        of_user = "" if job or log.stat.uid in self._service_accounts else f" of uid {log.stat.uid}"
        return log_group(job, log.position.path) + of_user


def _new_writes(logs: Iterable[Log]) -> Iterator[LastWrite]:
    """The last write to each log of a known job that was written to or read since the previous call.

    A log's ctime tells: its user cannot set it.
    """
    for log in logs:
        position = log.position
        write = (log.stat.touched, position.offset)
        if log.job is not None and log.stat.touched and write != log.activity.counted_write:
            log.activity.counted_write = write
            yield LastWrite(
                time=log.stat.touched / 1e9,
                job=log.job,
                path=position.path.encode("utf-8", "backslashreplace").decode(),
                origin=log.origin,
                offset=position.offset,
                line=position.line,
                uid=log.stat.uid,
            )
