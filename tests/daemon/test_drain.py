"""`--once` reads all there is, however long a file system takes to answer."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from exporter.config.node import Config
from exporter.core.model import Chunk
from exporter.daemon import daemon
from exporter.sources.calls import ask
from exporter.sources.reader_thread import ThreadedSource
from tests.support.daemons import finish, quiet_daemon
from tests.support.matches import catalogue_of


def test_what_a_slow_file_system_has_is_read_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "DRAIN_SECONDS", 0.3)
    (tmp_path / "job_7.log").write_text("GPU fault\n")
    config = Config.model_validate(
        {
            "state_dir": str(tmp_path / "state"),
            "sources": [{"kind": "files", "paths": [f"{tmp_path}/*.log"], "start": "beginning"}],
        }
    )
    own = quiet_daemon(config, catalogue_of("signatures:\n  - {id: gpu_fault, patterns: ['GPU fault']}"))
    (threaded,) = own.ingest.sources
    assert isinstance(threaded, ThreadedSource)
    poll, answered = threaded.source.poll, Event()

    def slow(now: float) -> Iterator[Chunk | None]:
        ask("", answered.wait, 1.0)  # nobody sets it: four times as long as the loop waits for an answer
        yield from poll(now)

    monkeypatch.setattr(threaded.source, "poll", slow)
    own.drain()
    counts = next(family.samples for family in own.snapshot().families if family.name == "gpufault_incidents_total")
    finish(own)
    assert counts["gpu_fault", "unknown"] == 1
