"""Sources that are renamed, parted, merged or put in another order: each log goes on where the one before left it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.daemon.handover import changed, handed_over
from exporter.sources.files.discovery import FilesSettings, Globs
from exporter.sources.files.source import FilesSource
from tests.support.tailing import Node, lines, write


def test_a_log_goes_on_in_another_source(tmp_path: Path) -> None:
    job, done = tmp_path / "job.log", tmp_path / "done.log"
    write(job, lines(1))
    write(done, lines(3))
    node = Node(tmp_path / "*.log").rescan()
    done.unlink()
    node.settle().commit()
    glob = str(tmp_path / "*.log")
    stored = {"source files": node.rows, "logs": {key: "held" for key in node.rows if key.endswith("job.log")}}
    stored = changed(stored, handed_over({"jobs": Globs([glob])}, stored))
    assert set(stored["source jobs"]) == {f"jobs:{job}", f"jobs:done:{done}", "jobs:since"}
    assert stored["logs"] == {f"jobs:{job}": "held"}
    assert set(stored["source files"]) == {"files:since"}
    write(job, lines(2))
    source = FilesSource(
        "jobs",
        FilesSettings(paths=(glob,), start="beginning"),
        stored=stored["source jobs"],
        first_start=False,
        job_of=lambda _: None,
        log=lambda _: None,
        wake=lambda: None,
    )
    assert [chunk.data for chunk in source.poll(node.now)] == [lines(2)]
    source.close()


def test_what_the_other_source_knows_already_is_newer(tmp_path: Path) -> None:
    stored = {
        "source a": {"a:/j/x.log": "old", "a:since": "1", "a:done:/j/y.log#2": "old"},
        "source b": {"b:done:/j/x.log": "new", "b:since": "2"},
    }
    rows = handed_over({"b": Globs(["/j/*.log"])}, stored)
    assert changed(stored, rows) == {
        "source a": {"a:since": "1"},
        "source b": {"b:done:/j/x.log": "new", "b:since": "2", "b:done:/j/y.log#2": "old"},
    }


def test_what_no_source_has_stays_where_it_is() -> None:
    stored = {"source a": {"a:/j/x.out": "1"}, "source kmsg": {"kmsg": "{}"}, "logs": {"a:/j/x.out": "held"}}
    assert handed_over({"a": Globs(["/j/*.log"]), "b": Globs(["/k/*.log"])}, stored) == []


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_a_log_moves_to_the_folder_of_another_source(tmp_path: Path, order: int, *, down: bool, shared: bool) -> None:
    """Whose source has its file knows: without that, it would be read there from its first line."""
    log, moved = tmp_path / "running/job.log", tmp_path / "done/job.log"
    for path in (log, moved):
        path.parent.mkdir()
    nodes = [Node(tmp_path / "running/*.log"), Node(tmp_path / "done/*.log")][::order]

    def look() -> list[int]:
        for node in nodes if shared else ():
            node.source.share_with(node.source for node in nodes)
        for _ in range(3):
            for node in nodes:
                node.rescan().poll(2.0)
        return sorted(number for node in nodes for number in node.seen)

    write(log, lines(1, 2))
    look()
    for node in nodes if down else ():
        node.commit().close()
    with log.open("ab", buffering=0) as writer:
        writer.write(lines(3))
        log.rename(moved)
        for node in nodes if down else ():
            node.crash()
        look()
        writer.write(lines(4))
    write(log, lines(5))
    assert (look() == [1, 2, 3, 4, 5]) == shared
    for node in nodes:
        node.commit().crash()
    assert (look() == [1, 2, 3, 4, 5]) == shared
    assert not any(node.stats.dropped for node in nodes)
