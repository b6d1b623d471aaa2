"""The node journal: whole lines, in bounded segments, whatever cut the last write short."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.store.journal import SEGMENTS, Journal

SEGMENT = 4096  # the least that one may be


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def records(folder: Path) -> list[str]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def test_records_are_lines_in_the_order_in_which_they_came(folder: Path) -> None:
    journal = Journal(folder, 1 << 20)
    journal.append(["a", "b"])
    journal.append([])
    journal.append(["ü"])
    assert (folder / "journal-000001.jsonl").read_text() == "a\nb\nü\n"
    assert stat.S_IMODE((folder / "journal-000001.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    journal.close()


def test_a_new_process_goes_on_where_the_last_one_stopped(folder: Path) -> None:
    for text in ("a", "b"):
        journal = Journal(folder, 1 << 20)
        journal.append([text])
        journal.close()
    assert (names(folder), records(folder)) == (["journal-000001.jsonl"], ["a", "b"])


def test_a_full_segment_is_followed_by_a_new_one(folder: Path) -> None:
    journal = Journal(folder, SEGMENTS * SEGMENT)
    journal.append(["a" * 2000, "b" * 2000])
    journal.append(["c" * 2000])
    assert [path.stat().st_size for path in sorted(folder.iterdir())] == [4002, 2001]
    journal.close()


def test_a_full_segment_of_an_earlier_process_is_followed_by_a_new_one(folder: Path) -> None:
    for _ in range(2):
        journal = Journal(folder, SEGMENTS * SEGMENT)
        journal.append(["a" * 4000])
        journal.close()
    assert names(folder) == ["journal-000001.jsonl", "journal-000002.jsonl"]


def test_the_oldest_segments_go_when_the_bound_is_reached(folder: Path) -> None:
    journal = Journal(folder, SEGMENTS * SEGMENT)
    journal.append([str(n) * 1000 for n in range(10)] * 10)  # one large batch, as after a full disk
    assert sum(path.stat().st_size for path in folder.iterdir()) <= SEGMENTS * SEGMENT
    assert len(names(folder)) == SEGMENTS
    assert journal.dropped_segments > 0
    assert records(folder)[-1] == "9" * 1000  # the newest stay
    journal.close()


def test_each_segment_begins_with_the_facts_as_last_told(folder: Path) -> None:
    facts = "facts 1"
    journal = Journal(folder, SEGMENTS * SEGMENT, lambda: facts)
    journal.append(["a" * 3000, "b" * 3000])
    facts = "facts 2"
    journal.append(["c" * 3000])
    journal.append(["d"])
    assert [path.read_text().splitlines()[0] for path in sorted(folder.iterdir())] == ["facts 1", "facts 1", "facts 2"]
    assert records(folder)[-1] == "d"
    journal.close()


def test_what_would_fill_a_segment_does_not_open_it(folder: Path) -> None:
    journal = Journal(folder, SEGMENTS * SEGMENT, lambda: "f" * SEGMENT)
    journal.append(["a"])
    assert records(folder) == ["a"]
    journal.close()


def test_a_segment_that_goes_on_is_not_opened_again(folder: Path) -> None:
    for _ in range(2):
        journal = Journal(folder, 1 << 20, lambda: "facts")
        journal.append(["a"])
        journal.close()
    assert records(folder) == ["facts", "a", "a"]


def test_a_record_larger_than_a_segment_has_one_of_its_own(folder: Path) -> None:
    journal = Journal(folder, SEGMENTS * SEGMENT)
    journal.append(["a", "b" * 10_000, "c"])
    assert [path.stat().st_size for path in sorted(folder.iterdir())] == [2, 10_001, 2]
    journal.close()


def test_a_write_that_was_cut_short_spoils_no_other_line(folder: Path) -> None:
    folder.mkdir()
    (folder / "journal-000003.jsonl").write_text('{"a": 1}\n{"b":')
    journal = Journal(folder, 1 << 20)
    journal.append(['{"b": 2}'])
    assert (folder / "journal-000003.jsonl").read_text() == '{"a": 1}\n{"b":\n{"b": 2}\n'
    journal.close()


def test_other_files_in_the_folder_are_left_alone(folder: Path) -> None:
    folder.mkdir()
    others = ["journal-old.jsonl", "journal-².jsonl", "notes.txt"]
    for name in others:
        (folder / name).write_text("mine")
    journal = Journal(folder, SEGMENTS * SEGMENT)
    journal.append(["a" * 4000] * 20)
    assert all((folder / name).read_text() == "mine" for name in others)
    journal.close()


def test_a_journal_that_someone_removed_is_begun_again(folder: Path) -> None:
    journal = Journal(folder, 1 << 20)
    journal.append(["a"])
    shutil.rmtree(folder)
    journal.append(["b"])
    assert records(folder) == ["b"]
    journal.close()


def test_a_segment_that_someone_moved_away_is_begun_again(folder: Path) -> None:
    journal = Journal(folder, 1 << 20)
    journal.append(["one"])
    (folder / "journal-000001.jsonl").rename(folder / "journal-000001.jsonl.1")
    journal.append(["two"])
    assert (folder / "journal-000001.jsonl").read_text() == "two\n"
    assert journal.end == (1, 4)


def test_a_folder_that_cannot_be_made_is_an_error_each_time(tmp_path: Path) -> None:
    (tmp_path / "journal").touch()
    journal = Journal(tmp_path / "journal", 1 << 20)
    for _ in range(2):
        with pytest.raises(OSError, match="exists"):
            journal.append(["a"])
    (tmp_path / "journal").unlink()
    journal.append(["a"])
    assert records(tmp_path / "journal") == ["a"]
    journal.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_on_a_full_disk_an_append_fails_and_comes_again_whole(small_disk: Path) -> None:
    journal = Journal(small_disk / "journal", 1 << 20)
    journal.append(['"first"'])
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 50_000)
    batch = [json.dumps(f"{n} " + "x" * 1000) for n in range(20)]
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            journal.append(batch)
    filler.unlink()
    journal.append(batch)
    journal.close()
    whole = []
    for line in records(small_disk / "journal"):
        try:
            whole.append(json.loads(line))
        except ValueError:  # what was cut short
            continue
    assert whole[0] == "first"
    assert whole[-20:] == [json.loads(line) for line in batch]
