import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.store import latest_incidents as latest
from exporter.store.journal import Journal, segment_path, segments_in
from exporter.store.latest_incidents import Before, latest_incidents


def incident(number: int, **more: Any) -> str:
    return json.dumps({"kind": "incident", "id": f"i{number}", "signature": "s", **more})


def write(folder: Path, segment: int, *lines: str, rest: str = "") -> None:
    segment_path(folder, segment).write_text("".join(f"{line}\n" for line in lines) + rest)


def pages(folder: Path, count: int, **more: Any) -> list[list[str]]:
    """The ids of all pages."""
    found, before = [], None
    while True:
        page = latest_incidents(folder, count, before=before, **more)
        found.append([incident["id"] for incident in page.incidents])
        if page.next is None:
            return found
        before = Before.parse(str(page.next))


def test_the_latest_come_first_across_segments(tmp_path: Path) -> None:
    write(tmp_path, 3, '{"kind":"facts"}', incident(1), incident(2))
    write(tmp_path, 4, incident(3), '{"kind":"heartbeat"}', incident(4))
    assert pages(tmp_path, 10) == [["i4", "i3", "i2", "i1"]]
    assert pages(tmp_path, 3) == [["i4", "i3", "i2"], ["i1"]]


def test_a_journal_that_is_missing_or_empty_has_no_incidents(tmp_path: Path) -> None:
    assert pages(tmp_path / "missing", 10) == [[]]
    write(tmp_path, 1)
    assert pages(tmp_path, 10) == [[]]


def test_a_line_that_is_being_written_and_one_that_is_damaged_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, 1, incident(1), "\x00\x00", incident(2)[:20], "[]", '{"kind":"incident","id":3}', rest=incident(9))
    assert pages(tmp_path, 10) == [["i1"]]


def test_what_is_written_meanwhile_shifts_no_page(tmp_path: Path) -> None:
    write(tmp_path, 1, *map(incident, range(6)))
    first = latest_incidents(tmp_path, 3)
    write(tmp_path, 1, *map(incident, range(9)))
    write(tmp_path, 2, incident(9))
    second = latest_incidents(tmp_path, 3, before=first.next)
    assert [one["id"] for one in (*first.incidents, *second.incidents)] == ["i5", "i4", "i3", "i2", "i1", "i0"]


def test_pages_end_where_segments_were_dropped_meanwhile(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 8 * 4096)
    journal.append([incident(number, pad="x" * 500) for number in range(100)])
    page = latest_incidents(tmp_path, 20)
    journal.append([incident(number, pad="x" * 500) for number in range(100, 200)])
    journal.close()
    assert latest_incidents(tmp_path, 20, before=page.next) == latest.Page((), None)


def test_of_an_incident_that_was_written_again_the_last_record_counts(tmp_path: Path) -> None:
    write(tmp_path, 1, incident(1, lines=1), incident(2), incident(1, lines=5))
    page = latest_incidents(tmp_path, 10)
    assert [(one["id"], one.get("lines")) for one in page.incidents] == [("i1", 5), ("i2", None)]


def test_one_call_reads_a_bounded_part_and_the_next_one_goes_on(tmp_path: Path) -> None:
    write(tmp_path, 1, *map(incident, range(100)))
    found = pages(tmp_path, 10, is_wanted=lambda one: one["id"] in ("i3", "i90"), max_bytes=1000)
    assert len(found) > 3
    assert [one for page in found for one in page] == ["i90", "i3"]


def test_reading_stops_where_records_are_too_old(tmp_path: Path) -> None:
    write(tmp_path, 1, *(incident(number, at=number) for number in range(10)))
    assert pages(tmp_path, 10, is_too_old=lambda one: one["at"] < 7) == [["i9", "i8", "i7"]]


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "1-2-3", "1e3-1", "٣-٣", "1-2\n", "9" * 30 + "-1"])
def test_a_text_that_is_not_a_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="use `next`"):
        Before.parse(text)


def test_a_made_up_position_gives_whole_records_or_none(tmp_path: Path) -> None:
    write(tmp_path, 2, incident(1), incident(2))
    for offset in range(200):
        ids = [one["id"] for one in latest_incidents(tmp_path, 10, before=Before(2, offset)).incidents]
        assert ids in ([], ["i1"], ["i2", "i1"])
    assert len(latest_incidents(tmp_path, 10, before=Before(9, 10**9)).incidents) == 2


@given(
    texts=st.lists(st.binary(max_size=9).map(lambda data: data.replace(b"\n", b"x")), max_size=9),
    block=st.integers(1, 9),
)
def test_lines_are_the_same_backwards(texts: list[bytes], block: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(b"".join(text + b"\n" for text in texts) + b"rest")
    whole, offset = [], 0
    for text in texts:
        whole.append((offset, text))
        offset += len(text) + 1
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as file:
        patch.setattr(latest, "BLOCK_BYTES", block)
        found = list(latest._lines_backwards(file, path.stat().st_size))
    assert [one for one in reversed(found) if one[1]] == [one for one in whole if one[1]]
    assert math.prod(one[0] >= 0 for one in found)
    assert segments_in(path.parent) == []
