"""Reading the journal: whatever is appended, dropped and read in whatever portions, nothing is lost or repeated."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from exporter.outputs.journal_reader import (
    JournalPosition,
    count_incidents,
    end_position,
    read_batch,
    start_position,
    valid_position,
)
from exporter.store.journal import Journal

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.integers(0, 3000), min_size=1, max_size=6)),
        st.tuples(st.just("other"), st.integers(0, 3000)),
        st.tuples(st.just("cut"), st.integers(0, 60)),
        st.tuples(st.just("read"), st.integers(1, 5)),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_what_is_read_and_what_is_dropped_is_what_was_written(
    tmp_path_factory: object, steps: list[tuple[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("journal")  # type: ignore[attr-defined]
    position, got, lost, written = JournalPosition(1, 0, 0), list[int](), 0, 0

    def before_drop(segment: int, path: Path) -> None:
        nonlocal position, lost
        if position.segment <= segment:
            lost += count_incidents(path, position.offset if position.segment == segment else 0)
            position = JournalPosition(segment + 1, 0, 0)

    def take(most: int) -> bool:
        nonlocal position
        assert valid_position(folder, position) == position
        batch = read_batch(folder, position, journal.end, most)
        assert len(batch.records) <= most
        if len(batch.records) > 1:  # the first of them alone end where the next begins
            half = batch.first(len(batch.records) // 2)
            rest = read_batch(folder, half.end, journal.end, most)
            assert rest.records[: len(batch.records) - len(half.records)] == batch.records[len(half.records) :]
        got.extend(placed.record["number"] for placed in batch.records)
        moved, position = batch.end != position, batch.end
        return moved

    journal = Journal(folder, 0, before_drop=before_drop)  # segments of 4 KiB, as small as they may be
    for what, value in [*steps, ("read", 5)]:
        if what == "write":
            sizes = list(value)  # type: ignore[call-overload]
            records = [
                {"kind": "incident", "id": "i", "number": written + n, "text": "x" * s} for n, s in enumerate(sizes)
            ]
            journal.append([json.dumps(record) for record in records])
            written += len(sizes)
        elif what == "other":
            journal.append([json.dumps({"kind": "heartbeat", "text": "x" * int(str(value))})])
        elif what == "cut":
            end = journal.end
            journal.close()  # a process that was killed in the middle of a write
            path = folder / f"journal-{end.segment:06}.jsonl"
            if path.exists():
                with path.open("a") as file:
                    file.write('{"kind":"incident","id":"' + "x" * int(str(value)))
        elif what == "reopen":
            journal.close()
            journal = Journal(folder, 0, before_drop=before_drop)
        else:
            take(int(str(value)))
    while take(3):
        pass
    journal.close()
    assert got == sorted(set(got))
    assert len(got) + lost == written


def test_a_place_in_a_journal_that_was_replaced_is_no_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1 << 20)
    journal.append(["a" * 100, "b" * 100])
    position = end_position(tmp_path, journal.end)
    assert valid_position(tmp_path, position) == position
    journal.append(["c"])
    assert valid_position(tmp_path, position) == position
    path = tmp_path / "journal-000001.jsonl"
    path.write_text("z" * 1000 + "\n")
    assert valid_position(tmp_path, position) == start_position(tmp_path) == JournalPosition(1, 0, 0)
    path.write_text("")
    assert valid_position(tmp_path, position) == JournalPosition(1, 0, 0)
    path.rename(tmp_path / "journal-000007.jsonl")
    assert valid_position(tmp_path, position) == JournalPosition(7, 0, 0)
    assert valid_position(tmp_path, JournalPosition(8, 0, 0)) == JournalPosition(8, 0, 0)  # about to be begun
    assert valid_position(tmp_path, JournalPosition(9, 5, 0)) == JournalPosition(7, 0, 0)
