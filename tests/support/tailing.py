"""A node in a test: a files source and a pipeline over real files, a clock that only the test moves, crashes at will.

A crash loses all that was not committed, as `kill -9` does: counts and positions go together or not at all.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.core.catalogue.loader import load_packs
from exporter.core.decoding.jobs import no_job
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Chunk, Match
from exporter.sources.base import SourceStats
from exporter.sources.files.discovery import FilesSettings
from exporter.sources.files.source import FilesSource

CATALOGUE = load_packs(
    [
        (
            "pack.yaml",
            r"""
pack: test
signatures:
  - id: numbered_crash
    title: a crash that tells its number
    vendor: any
    layer: host
    severity: error
    patterns: ['CRASH seq=(?P<seq>\d+)']
    examples: ['CRASH seq=1']
    near_misses: [{text: 'CRASH course', why: no number}]
  - id: crash_in_three_lines
    title: a crash that takes three lines
    vendor: any
    layer: host
    severity: error
    lines: 3
    patterns: ['BLOCK opens\n.*\nBLOCK seq=(?P<seq>\d+) closes']
    examples: ["BLOCK opens\n\nBLOCK seq=1 closes"]
    near_misses: [{text: 'BLOCK opens', why: one line}]
""",
        )
    ]
)


def lines(*numbers: int) -> bytes:
    return b"".join(b"CRASH seq=%d\n" % number for number in numbers)


def real_pipeline(line_bytes: int) -> Pipeline:
    return Pipeline(CATALOGUE, engine="python", line_bytes=line_bytes)


_open: list[Node] = []


def close_nodes() -> None:
    """Let go of the descriptors of all nodes that tests have made and left."""
    while _open:
        _open[-1].close()


class Node:
    """What a node counts. `seen` holds the numbers of all crashes counted, committed or not."""

    def __init__(
        self,
        *paths: Path | str,
        first_start: bool = False,
        wake: Callable[[], None] = lambda: None,
        watch: bool = False,
        line_bytes: int = 1 << 20,
        pipeline: Callable[[int], Pipeline] = real_pipeline,
        **settings: Any,
    ) -> None:
        self.now = 1_800_000_000.0
        self.said: list[str] = []
        self.chunks: list[Chunk] = []
        self._wake = wake
        self._line_bytes = line_bytes
        self._new_pipeline = pipeline
        self._settings = FilesSettings(
            paths=tuple(map(str, paths)), watch=watch, line_bytes=line_bytes, **{"start": "beginning", **settings}
        )
        self._watch: Callable[[], Any] | None = None
        self.rows: dict[str, str] = {}
        self._logs: dict[str, str] = {}
        self._committed: list[Match] = []
        self._start(first_start)

    def _start(self, first_start: bool) -> None:
        if self not in _open:
            _open.append(self)
        self._matches = list(self._committed)
        self.pipeline = self._new_pipeline(self._line_bytes)
        self.pipeline.restore(self._logs)
        self.source = FilesSource(
            "files",
            self._settings,
            stored=dict(self.rows),
            first_start=first_start,
            job_of=no_job,
            log=self.said.append,
            wake=self._wake,
        )
        if self._watch is not None:
            self.source._watch = self._watch()

    def watch_by(self, watch: Callable[[], Any]) -> None:
        """Something else tells of changes, in place of inotify."""
        self._watch = watch
        self.source._watch = watch()

    @property
    def stats(self) -> SourceStats:
        return self.source.stats

    @property
    def watch_mode(self) -> str:
        return self.source.watch_mode

    @property
    def matches(self) -> list[Match]:
        return self._matches

    @property
    def seen(self) -> list[int]:
        return sorted(int(match.captures["seq"]) for match in self._matches)

    @property
    def twice(self) -> list[int]:
        return sorted(number for number, count in Counter(self.seen).items() if count > 1)

    def poll(self, seconds: float = 0.25, *, times: int = 1) -> Node:
        for _ in range(times):
            self.now += seconds
            self.chunks = []
            for chunk in self.source.poll(self.now):
                self.chunks.append(chunk)
                done = self.pipeline.process(chunk)
                self._matches += done.matches
                self.source.advance(chunk.log, done.consumed, done.newlines)
        return self

    def rescan(self) -> Node:
        """Long enough for a walk over all folders, and for the chunks of what it finds."""
        return self.poll(10.0).poll()

    def settle(self) -> Node:
        """Long enough for everything: walks, tails that have no end, and the grace of files that are gone."""
        return self.rescan().poll(2.0).poll(40.0).poll(times=2).rescan()

    def commit(self) -> Node:
        """What the daemon does: the state of the source, of the pipeline and of the counters in one transaction."""
        unsaved = self.source.unsaved()
        for key, value in unsaved.items():
            if value is None:
                self.pipeline.forget(key)
        for rows, changed in ((self.rows, unsaved), (self._logs, self.pipeline.unsaved())):
            for key, value in changed.items():
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
        self.source.saved()
        self.pipeline.saved()
        self._committed = list(self._matches)
        return self

    def crash(self) -> Node:
        """`kill -9`, and a new process on what was committed."""
        self.source.close()
        self._start(first_start=False)
        return self

    def restart(self, **settings: Any) -> Node:
        """Stop in good order, and start again, with other settings if any are given."""
        self.commit()
        self._settings = replace(self._settings, **settings)
        return self.crash()

    def close(self) -> None:
        if self in _open:
            _open.remove(self)
            self.source.close()


@contextmanager
def amid(moment: int, step: Callable[[], object]) -> Iterator[None]:
    """Let `step` happen before the system call number `moment` of what runs inside, or behind it if it makes fewer."""
    calls = 0

    def before(_frame: object, event: str, function: object) -> None:
        nonlocal calls
        if event != "c_call" or getattr(function, "__module__", "") not in ("posix", "fcntl"):
            return
        calls += 1
        if calls == moment + 1:
            step()

    sys.setprofile(before)  # is off while it runs itself
    try:
        yield
    finally:
        sys.setprofile(None)
    if calls <= moment:
        step()


def write(path: Path, data: bytes) -> None:
    """As a job's writer does that opens, appends and closes."""
    with path.open("ab") as file:
        file.write(data)


def copytruncate(path: Path, copy: Path) -> None:
    copy.write_bytes(path.read_bytes())
    with path.open("r+b") as file:
        file.truncate(0)
