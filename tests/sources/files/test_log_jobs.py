"""The last writes of jobs are counted where something was written or read; a node may have 20,000 idle logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from exporter.core.model import Job
from exporter.sources.files.contents import Fingerprint
from exporter.sources.files.log import Log
from exporter.sources.files.offering import LogJobs
from exporter.sources.files.states import LogPosition
from exporter.sources.node_jobs import COUNTED_EVERY_SECONDS, LastWrite, NodeJobs


class Counting(NodeJobs):
    """Remembers what it was last given."""

    def wrote(self, writes: Iterable[LastWrite]) -> None:
        self.given = list(writes)
        super().wrote(self.given)


def test_a_write_is_counted_once_and_again_when_more_is_written_or_read() -> None:
    node_jobs = Counting()
    jobs = LogJobs("files", node_jobs, frozenset())
    path = "/logs/slurm-7.out"
    position = LogPosition(
        path=path, device=1, inode=2, generation=None, modified=0, offset=10, line=1, mark=Fingerprint(), format=None
    )
    log = Log(f"files:{path}", path, path, position, job=Job(kind="slurm", id="7"))
    log.stat.touched = 5_000_000_000

    def counted(number: int) -> list[tuple[float, int]]:
        jobs.count([log], number * COUNTED_EVERY_SECONDS, 100.0)
        return [(write.time, write.offset) for write in node_jobs.given]

    assert counted(0) == [(5.0, 10)]
    assert counted(1) == []
    log.stat.touched = 6_000_000_000
    assert counted(2) == [(6.0, 10)]
    log.position = replace(position, offset=20)
    assert counted(3) == [(6.0, 20)]
    assert [type(last) for last in node_jobs.last_writes.values()] == [LastWrite]
