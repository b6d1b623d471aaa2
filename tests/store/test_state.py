"""The state file: all of a commit or none of it, whatever happens to the process, the disk or the file."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporter.store import state as state_module
from exporter.store.state import SCHEMA_VERSION, Loaded, State, StateUnusable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def after_a_kill(folder: Path, tmp_path: Path) -> Loaded:
    """What a new process finds when this one is killed now: its files as they are, and no lock."""
    left = shutil.copytree(folder, tmp_path / "left")
    with closing(State(left)) as state:
        return state.loaded


def test_what_was_committed_is_there_after_a_kill(folder: Path, tmp_path: Path) -> None:
    state = State(folder)
    assert (state.loaded.spaces, state.loaded.counters, state.loaded.first_start) == ({}, {}, True)
    state.commit([("logs", "a", "1"), ("logs", "b", "2"), ("facts", "a", "3")], {("lines", "[]"): 1.0}, ["r1", "r2"])
    state.commit([("logs", "a", None), ("logs", "b", "4"), ("logs", "gone", None)], {("lines", "[]"): 2.0}, ["r3"])
    loaded = after_a_kill(folder, tmp_path)
    assert loaded.spaces == {"logs": {"b": "4"}, "facts": {"a": "3"}}
    assert loaded.counters == {("lines", "[]"): 2.0}
    assert (loaded.first_start, loaded.set_aside) == (False, None)
    assert state.load().spaces == loaded.spaces
    assert [record for _, record in state.outbox()] == ["r1", "r2", "r3"]
    state.close()


def test_a_commit_that_fails_half_way_changes_nothing(folder: Path) -> None:
    def records() -> Iterator[str]:
        yield "r1"
        raise OSError("lost")

    state = State(folder)
    with pytest.raises(OSError, match="lost"):
        state.commit([("logs", "a", "1")], {("lines", "[]"): 1.0}, records())
    assert (state.load().spaces, state.load().counters, state.outbox()) == ({}, {}, [])
    state.commit([("logs", "a", "1")], {}, [])
    assert state.load().spaces == {"logs": {"a": "1"}}
    state.close()


def test_delivered_records_leave_the_outbox_and_numbers_are_not_used_again(folder: Path) -> None:
    state = State(folder)
    state.commit([], {}, ["r1", "r2"])
    (first, _), (second, _) = state.outbox()
    state.remove_delivered(first)
    assert state.outbox() == [(second, "r2")]
    state.remove_delivered(second)
    state.commit([], {}, ["r3"])
    ((third, _),) = state.outbox()
    assert third > second
    state.close()


def test_a_second_process_is_refused_until_the_first_is_gone(folder: Path) -> None:
    state = State(folder)
    with pytest.raises(StateUnusable, match=r"another gpufault is running on this state; stop it, or set --state\.dir"):
        State(folder)
    state.close()
    State(folder).close()


def test_only_its_user_may_read_the_state(folder: Path) -> None:
    mask = os.umask(0)
    try:
        state = State(folder)
        state.commit([("logs", "a", "1")], {}, [])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        state.close()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes == dict.fromkeys(["lock", "state.sqlite", "state.sqlite-wal", "state.sqlite-shm"], 0o600)


# Damage


def damaged(folder: Path, how: str) -> bytes:
    """A state file with a row, then damaged; returns what it holds now."""
    state = State(folder)
    state.commit([("logs", "a", "1"), *(("logs", str(n), "x" * 500) for n in range(100))], {}, [])
    state.close()
    path = folder / "state.sqlite"
    content = bytearray(path.read_bytes())
    match how:
        case "garbage":
            content = bytearray(b"not a database, but longer than a header\n" * 50)
        case "a header and zeros":
            content = bytearray(b"SQLite format 3\0" + bytes(4000))
        case "half of it":
            del content[len(content) // 2 :]
        case "a page":
            content[4096 * 3 : 4096 * 4] = b"\xff" * 4096
        case "text that is none":
            at = content.index(b"x" * 500)
            content[at : at + 4] = b"\xff\xfe\xff\xfe"
    path.write_bytes(content)
    if how in ("tables of another program", "no tables"):
        with sqlite3.connect(path) as db:
            db.execute("DROP TABLE rows")
            db.execute("CREATE TABLE rows (other TEXT)" if how.startswith("tables") else "SELECT 1")
        db.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    "how",
    [
        "garbage",
        "a header and zeros",
        "half of it",
        "a page",
        "text that is none",
        "tables of another program",
        "no tables",
    ],
)
def test_a_damaged_file_is_set_aside_and_kept_and_work_goes_on(folder: Path, tmp_path: Path, how: str) -> None:
    content = damaged(folder, how)
    state = State(folder)
    assert state.loaded.set_aside == folder / "state.damaged-1.sqlite"
    assert state.loaded.set_aside.read_bytes() == content
    assert (state.loaded.spaces, state.loaded.first_start) == ({}, False)  # files that are there were read before
    state.commit([("logs", "a", "2")], {}, [])
    assert after_a_kill(folder, tmp_path).spaces == {"logs": {"a": "2"}}
    state.close()


def test_each_damaged_file_is_kept(folder: Path) -> None:
    for number in (1, 2):
        damaged(folder, "garbage")
        state = State(folder)
        assert state.loaded.set_aside == folder / f"state.damaged-{number}.sqlite"
        state.close()


def test_an_empty_file_is_a_first_start(folder: Path) -> None:
    folder.mkdir()
    (folder / "state.sqlite").touch()  # killed before the tables were made
    state = State(folder)
    assert (state.loaded.first_start, state.loaded.set_aside) == (True, None)
    state.close()


def test_a_file_of_a_newer_version_is_refused_and_left_alone(folder: Path) -> None:
    State(folder).close()
    with sqlite3.connect(folder / "state.sqlite") as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    for _ in range(2):  # and no lock is left behind
        with pytest.raises(StateUnusable, match=r"written by a newer gpufault .* upgrade again, or move the file away"):
            State(folder)
    assert list(folder.glob("state.damaged*")) == []


@pytest.fixture
def of_this_version(folder: Path) -> Path:
    """A state file with a row and a counter."""
    state = State(folder)
    state.commit([("logs", "a", "1")], {("lines", "[]"): 7.0}, ["r1"])
    state.close()
    return folder / "state.sqlite"


def next_version(monkeypatch: pytest.MonkeyPatch, *steps: str) -> None:
    """What a later gpufault will be: its schema, and how it makes those before its own."""
    monkeypatch.setattr(state_module, "SCHEMA_VERSION", SCHEMA_VERSION + max(1, len(steps)))
    monkeypatch.setattr(state_module, "MIGRATIONS", dict(enumerate(steps, SCHEMA_VERSION)))


def test_a_file_of_an_older_version_is_made_one_of_this_version(
    of_this_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_version(
        monkeypatch,
        "ALTER TABLE rows ADD COLUMN since REAL; UPDATE rows SET value = value || '1'",
        "UPDATE counters SET value = value * 2",
    )
    for _ in range(2):  # once only
        state = State(of_this_version.parent)
        assert (state.loaded.spaces, state.loaded.first_start) == ({"logs": {"a": "11"}}, False)
        assert state.loaded.counters == {("lines", "[]"): 14.0}
        assert [record for _, record in state.outbox()] == ["r1"]
        state.close()
    monkeypatch.undo()
    with pytest.raises(StateUnusable, match="written by a newer gpufault"):  # and there is no way back
        State(of_this_version.parent)


def test_a_migration_that_fails_half_way_changes_nothing(
    of_this_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_version(
        monkeypatch, "UPDATE rows SET value = '2'; UPDATE no_such_column SET value = 1 / 0; SELECT nonsense(1)"
    )
    with pytest.raises(StateUnusable, match=r"migration from schema 1 to 2 failed: no such table"):
        State(of_this_version.parent)
    monkeypatch.undo()
    state = State(of_this_version.parent)
    assert (state.loaded.spaces, state.loaded.set_aside) == ({"logs": {"a": "1"}}, None)
    state.close()


def test_a_file_of_an_older_version_that_nobody_can_migrate_is_refused_and_left_alone(
    of_this_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_version(monkeypatch)
    content = of_this_version.read_bytes()
    with pytest.raises(StateUnusable, match=r"unsupported schema 1; this version supports 2"):
        State(of_this_version.parent)
    assert of_this_version.read_bytes() == content


def test_a_database_that_is_no_state_is_refused_and_left_alone(folder: Path) -> None:
    folder.mkdir()
    with sqlite3.connect(folder / "state.sqlite") as db:
        db.execute("CREATE TABLE accounts (name TEXT)")
    db.close()
    with pytest.raises(StateUnusable, match=r"unsupported schema 0; this version supports 1"):
        State(folder)
    assert list(folder.glob("state.damaged*")) == []


# The disk


def test_a_folder_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(StateUnusable, match=r"use a folder that this user can write to, or set --state\.dir"):
        State(tmp_path / "state")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_costs_no_committed_value_and_is_survived(small_disk: Path, tmp_path: Path) -> None:
    state = State(small_disk / "state")
    state.commit([("logs", "a", "1")], {("lines", "[]"): 1.0}, ["r1"])
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (1 << 20))
    with pytest.raises(sqlite3.Error, match=r"full|I/O"):
        state.commit([("logs", "a", "2")], {("lines", "[]"): 2.0}, ["x" * 100_000])
    assert (state.load().spaces, state.load().counters) == ({"logs": {"a": "1"}}, {("lines", "[]"): 1.0})
    filler.unlink()
    state.commit([("logs", "a", "2")], {("lines", "[]"): 2.0}, ["r2"])
    assert after_a_kill(small_disk / "state", tmp_path).spaces == {"logs": {"a": "2"}}
    state.close()


def test_a_disk_that_is_full_at_the_start_is_named(small_disk: Path) -> None:
    (small_disk / "state").mkdir()
    (small_disk / "state" / "lock").touch()
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(b"x" * (1 << 20))
    with pytest.raises(StateUnusable, match="is the disk full or read-only"):
        State(small_disk / "state")


# -- deleted or replaced under a running daemon


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def replaced_by_nothing_of_ours(folder: Path) -> None:
    shutil.rmtree(folder)
    State(folder).close()


@pytest.mark.parametrize(
    "happens",
    [
        shutil.rmtree,
        emptied,
        lambda folder: (folder / "state.sqlite").unlink(),
        lambda folder: (folder / "state.sqlite-wal").unlink(),
        lambda folder: (folder / "lock").unlink(),
        lambda folder: (folder / "state.sqlite").rename(folder / "old"),
        lambda folder: folder.rename(folder.with_name("old")),
        replaced_by_nothing_of_ours,
    ],
    ids=["folder", "files", "database", "wal", "lock", "moved", "folder-moved", "replaced"],
)
def test_what_is_deleted_or_replaced_in_use_is_written_anew(tmp_path: Path, happens: Callable[[Path], object]) -> None:
    folder = tmp_path / "state"
    state = State(folder)
    state.commit([("logs", "a", "1"), ("logs", "b", "2")], {("count", "[]"): 7.0}, ["one"])
    assert state.in_place
    happens(folder)
    assert not state.in_place
    state.commit([("logs", "b", None)], {("count", "[]"): 8.0}, ["two"])
    assert state.in_place
    state.commit([("logs", "c", "3")], {}, [])
    with pytest.raises(StateUnusable, match="another gpufault"):
        State(folder)
    state.close()
    again = State(folder)
    assert again.loaded.spaces == {"logs": {"a": "1", "c": "3"}}
    assert again.loaded.counters == {("count", "[]"): 8.0}
    assert [record for _, record in again.outbox()] == ["one", "two"]
    assert not again.loaded.first_start
    again.close()


def test_to_write_it_anew_may_fail_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(tmp_path)
    state.commit([("logs", "a", "1")], {}, [])
    (tmp_path / "state.sqlite").unlink()

    def fails(_path: Path, _target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fails)
        with pytest.raises(OSError, match="Input/output error"):
            state.commit([("logs", "b", "2")], {}, [])
    state.commit([("logs", "b", "2")], {}, [])
    assert state.in_place
    assert state.load().spaces == {"logs": {"a": "1", "b": "2"}}
    state.close()


def test_a_file_that_took_its_place_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    state = State(folder)
    state.commit([("logs", "a", "1")], {}, [])
    (folder / "state.sqlite").unlink()
    (folder / "state.sqlite").write_bytes(b"of somebody else")
    state.commit([("logs", "b", "2")], {}, [])
    assert (folder / "state.replaced-1.sqlite").read_bytes() == b"of somebody else"
    assert state.load().spaces == {"logs": {"a": "1", "b": "2"}}
    state.close()


def test_a_folder_that_another_daemon_has_taken_over_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    state = State(folder)
    state.commit([("logs", "a", "1")], {}, [])
    shutil.rmtree(folder)
    other = State(folder)
    other.commit([("logs", "b", "2")], {}, [])
    with pytest.raises(StateUnusable, match="another gpufault"):
        state.commit([("logs", "c", "3")], {}, [])
    other.close()
    state.commit([("logs", "c", "3")], {}, [])
    assert state.load().spaces == {"logs": {"a": "1", "c": "3"}}
    state.close()
