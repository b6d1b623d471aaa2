"""When the jobs of a source's logs last wrote to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from exporter.sources.files.tail import Log
from exporter.sources.node_jobs import LastWrite


def last_writes(logs: Iterable[Log]) -> Iterator[LastWrite]:
    """The last write to each log of a known job. A log's ctime tells: its user cannot set it."""
    for log in logs:
        if log.job is not None and log.touched:
            position = log.position
            yield LastWrite(
                time=log.touched / 1e9,
                job=log.job,
                path=position.path.encode("utf-8", "backslashreplace").decode(),
                origin=log.origin,
                offset=position.offset,
                line=position.line,
            )
