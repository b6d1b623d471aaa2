"""Records on their way into the journal, while disks are full."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.metrics.counters import Counters
from exporter.store import outbox as bounds
from exporter.store.journal import Journal
from exporter.store.outbox import Outbox
from exporter.store.state import State


@pytest.fixture
def counters() -> Counters:
    return Counters({}, label_values=200)


def lost(counters: Counters) -> float:
    return sum(
        value for (name, _), value in counters.unsaved().items() if name == "gpufault_journal_records_lost_total"
    )


def record(number: int) -> dict[str, object]:
    return {"kind": "heartbeat", "number": number}


def test_what_is_committed_reaches_the_journal_in_order(tmp_path: Path, counters: Counters) -> None:
    state, journal = State(tmp_path / "state"), Journal(tmp_path / "journal", 1 << 20)
    box = Outbox(state, counters)
    for number in range(3):
        box.add(record(number))
    box.deliver(journal)
    assert not (tmp_path / "journal").exists()  # nothing that a kill could take back
    state.commit([], {}, box.uncommitted)
    box.saved()
    assert box.uncommitted == []
    box.deliver(journal)
    lines = (tmp_path / "journal" / "journal-000001.jsonl").read_text().split()
    assert [line.count(f'"number":{number}') for number, line in enumerate(lines)] == [1, 1, 1]
    assert lost(counters) == 0


def test_while_the_state_cannot_be_written_memory_stays_bounded(
    tmp_path: Path, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_UNCOMMITTED_CHARS", 1000)
    box = Outbox(State(tmp_path / "state"), counters)
    for number in range(100):
        box.add(record(number))
    assert sum(map(len, box.uncommitted)) <= 1000
    assert '"number":99' in box.uncommitted[-1]
    assert lost(counters) == 100 - len(box.uncommitted)


def test_while_the_journal_cannot_be_written_the_state_stays_bounded(
    tmp_path: Path, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_COMMITTED", 10)
    state, journal = State(tmp_path / "state"), Journal(tmp_path / "journal", 1 << 20)
    (tmp_path / "journal").write_text("a file where the folder should be")
    box = Outbox(state, counters)
    for number in range(25):
        box.add(record(number))
    state.commit([], {}, box.uncommitted)
    box.saved()
    with pytest.raises(FileExistsError):
        box.deliver(journal)
    assert lost(counters) == 15
    (tmp_path / "journal").unlink()
    box.deliver(journal)
    lines = (tmp_path / "journal" / "journal-000001.jsonl").read_text().split()
    assert ['"number":15' in lines[0], '"number":24' in lines[-1], len(lines)] == [True, True, 10]
