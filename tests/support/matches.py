"""What tests of the core build again and again: a catalogue, a chunk, a log, a match, open incidents.

Whatever a test does not ask about has a value here, so that a test shows what it is about and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from exporter.core.catalogue.loader import Catalogue, load_packs
from exporter.core.diagnosis.incidents import condense
from exporter.core.diagnosis.open_incidents import Entry
from exporter.core.matching.pipeline import Pipeline, Processed
from exporter.core.model import Chunk, Job, Match, SourceKind
from exporter.core.text.yaml_text import parse

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
WINDOW = 60.0

_NOT_ASKED_ABOUT: Mapping[str, Mapping[str, Any]] = {
    "signatures": {"title": "a crash", "vendor": "any", "layer": "host", "severity": "error"},
    "root_causes": {"title": "a cause", "verdict": "workload", "strength": "C", "remediation": "Mend it."},
    "log_facts": {"title": "a fact"},
    "echoes": {"title": "an echo"},
    "crash_shapes": {"title": "a shape"},
}


def catalogue_of(text: str) -> Catalogue:
    """The catalogue of a pack of which only what matters is written."""
    pack = parse(text, "pack.yaml").data
    for kind, rest in _NOT_ASKED_ABOUT.items():
        pack[kind] = [{**rest, **item} for item in pack.get(kind, [])]
    return load_packs([("pack.yaml", json.dumps({"pack": "test", **pack}))])


def chunk(data: bytes, **what: Any) -> Chunk:
    """A chunk of a job's plain log, its last unless `end` says otherwise."""
    rest: dict[str, Any] = {
        "log": "log", "origin": "origin", "path": "/job.log", "source": "job", "format": "plain",
        "offset": 0, "line": 1, "read_at": NOW, "end": "final",
    }  # fmt: skip
    return Chunk(data=data, **{**rest, **what})


class Tail:
    """A log as a source offers it: what was not consumed comes again, with what was written behind it."""

    def __init__(self, pipeline: Pipeline, **what: Any) -> None:
        self.pipeline = pipeline
        self.matches: list[Match] = []
        self.waiting = b""
        self._what = {"offset": 0, "line": 1, **what}

    def offer(self, data: bytes = b"", end: str = "more", **now: Any) -> Processed:
        self.waiting += data
        done = self.pipeline.process(chunk(self.waiting, end=end, **{**self._what, **now}))
        assert 0 <= done.consumed <= len(self.waiting)
        assert done.newlines == self.waiting[: done.consumed].count(b"\n")
        self.waiting = self.waiting[done.consumed :]
        self._what["offset"] += done.consumed
        self._what["line"] += done.newlines
        self.matches += done.matches
        return done

    @property
    def places(self) -> list[tuple[str, int, int]]:
        """Of each match what it shows, and where: its line and offset."""
        return [(m.signature, m.line, m.offset) for m in self.matches]


def match(
    signature: str, seconds: float = 0.0, *, source: SourceKind = "job", job: str | Job | None = "7", **what: Any
) -> Match:
    """A match of a stamped line, `seconds` after NOW, read when it was written; each second on a line of its own."""
    rest: dict[str, Any] = {
        "origin": "origin" if source == "job" else "boot", "path": "/job.log" if source == "job" else "/dev/kmsg",
        "line": int(seconds) + 1, "offset": int(seconds * 100), "time": NOW + seconds, "time_source": "log",
        "read_at": NOW + seconds, "text": f"{signature} at {seconds}",
    }  # fmt: skip
    if source == "job":
        rest["job"] = Job(id=job, kind="slurm") if isinstance(job, str) else job
    return Match(signature=signature, source=source, **{**rest, **what})


@contextmanager
def not_as_root() -> Iterator[None]:
    """Without root's right to read everything; a test that is not run by root is nobody already."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def entries(*matches: Match) -> list[Entry]:
    """The open incidents of some matches, in canonical order."""
    incidents = sorted(condense(matches, WINDOW), key=lambda i: i.order)
    return [Entry(number, incident) for number, incident in enumerate(incidents, 1)]
