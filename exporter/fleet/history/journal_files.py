"""Journals as files that grow: which there are, and what is new in each since its cursor.

A file is known by device and inode, or else by its path; either way the bytes before the cursor must be the same, else it
is read from its start. Records that were read before are recognised by the tables, so reading again doubles nothing.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from exporter.core.text.phrases import printable
from exporter.scan.decompress import Unpacked, unpacker_of

FORMS = ("jsonl", "ndjson")
ARCHIVES = ("gz", "zst")
TAIL_BYTES = 4096  # compared before a cursor: with timestamps in each record no two journals share so many
PART_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20  # a longer line is skipped in parts
PARQUET_ROWS = 5000  # fetched at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a file was read: `position` bytes and `lines`; `tail` is the hash of the last bytes before it."""

    path: str
    device: int = 0
    inode: int = 0
    size: int = -1
    changed: int = 0  # nanoseconds
    position: int = 0
    lines: int = 0
    tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The journals below a folder, oldest first, and what has such a name but cannot be opened safely."""

    files: tuple[Cursor, ...]  # positions are 0
    others: tuple[str, ...]


class NothingToRead(OSError):
    """No journal, or none with a usable record."""


class NoSuchFolder(NothingToRead):
    """The folder of journals is missing."""


def check_folder(folder: Path) -> None:
    """Raises NoSuchFolder."""
    if not folder.exists():
        raise NoSuchFolder(f"{folder}: no such folder; gather the nodes' journals in it")


def list_files(folder: Path) -> Listing:
    """Raises NoSuchFolder. FIFOs, sockets and devices are named and not opened: that could wait for ever."""
    check_folder(folder)
    files, others = [], []
    for path in [str(folder)] if folder.is_file() else _names(folder):
        with suppress(OSError):  # gone since, or a link to nothing
            about = os.stat(path)
            if stat.S_ISREG(about.st_mode):
                files.append(_file(path, about))
            elif not stat.S_ISDIR(about.st_mode):
                others.append(path)
    return Listing(files=tuple(sorted(files, key=lambda file: (file.changed, file.path))), others=tuple(sorted(others)))


def _file(path: str, about: os.stat_result) -> Cursor:
    return Cursor(path=path, device=about.st_dev, inode=about.st_ino, size=about.st_size, changed=about.st_mtime_ns)


def _names(folder: Path) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        yield from (os.path.join(where, name) for name in names if is_journal(name))


def is_journal(name: str) -> bool:
    """Whether a name is a journal's: lines, plain or compressed, or a Parquet file."""
    stem, _, ending = name.rpartition(".")
    return ending in (*FORMS, "parquet") or (ending in ARCHIVES and stem.rpartition(".")[2] in FORMS)


def is_growing(path: str) -> bool:
    """Archives and Parquet files are read as a whole; lines are followed."""
    return path.rpartition(".")[2] not in (*ARCHIVES, "parquet")


def resume(file: Cursor, cursors: Iterable[Cursor]) -> Cursor:
    """Where to go on in a file, given the cursors that may be its own; from its start if none is. Raises OSError."""
    for cursor in cursors:
        if cursor.position <= file.size and _tail(file.path, cursor.position) == cursor.tail:
            return replace(file, position=cursor.position, lines=cursor.lines, tail=cursor.tail)
    return file


def new_lines(file: Cursor, most: int, *, is_whole: bool) -> tuple[bytes, Cursor, bool]:
    """The next complete lines of a growing file, about `most` bytes at most, and the cursor after them.

    is_whole: nothing is written to it any more, so its last line may lack a newline. True: a line is longer than
    MAX_LINE_BYTES; a part of it was skipped. Raises OSError.
    """
    with open(file.path, "rb") as stream:
        stream.seek(file.position)
        data = stream.read(most)
        while b"\n" not in data and len(data) < MAX_LINE_BYTES and (more := stream.read(PART_BYTES)):
            data += more
    if is_whole and data and not data.endswith(b"\n") and file.position + len(data) >= file.size:
        return data + b"\n", replace(file, position=file.position + len(data), lines=file.lines + 1), False
    end = data.rfind(b"\n") + 1
    too_long = not end and len(data) >= MAX_LINE_BYTES
    if too_long:
        end = len(data)
    if not end:
        return b"", file, False
    lines = data[:end]
    position = file.position + end
    after = replace(file, position=position, lines=file.lines + lines.count(b"\n"), tail=_tail(file.path, position))
    return (b"", after, True) if too_long else (lines, after, False)


class Damaged(Exception):
    """A file of which only what was read so far can be read. The message says why."""


def whole_lines(path: str, db: duckdb.DuckDBPyConnection) -> Iterator[bytes]:
    """The lines of an archive, or the rows of a Parquet file as JSON. Raises Damaged after the last, OSError."""
    if not path.endswith(".parquet"):
        yield from _unpacked(path)
        return
    with open(path, "rb"):  # a file that is gone, or not ours to read, is not damaged
        pass
    try:
        rows = db.execute("SELECT to_json(t)::VARCHAR FROM read_parquet(?) AS t", [path])
        while batch := rows.fetchmany(PARQUET_ROWS):
            yield from (row[0].encode() for row in batch)
    except duckdb.Error as error:
        raise Damaged(printable(str(error).splitlines()[0][:200])) from error


def _unpacked(path: str) -> Iterator[bytes]:
    unpacker = unpacker_of(path)
    assert unpacker is not None
    rest = b""
    with open(path, "rb") as packed:
        unpacked = Unpacked(packed, unpacker)
        try:
            while data := unpacked.read(PART_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                yield from lines
                if len(rest) > MAX_LINE_BYTES:
                    yield rest
                    rest = b""
        except OSError as error:
            if error.errno is not None:  # the disk's; the archive may be whole
                raise
            raise Damaged("damaged; the lines before the damage were read") from error
    if rest:
        yield rest


def _tail(path: str, position: int) -> str:
    """The hash of the last bytes before a position."""
    if not position:
        return ""
    with open(path, "rb") as stream:
        stream.seek(max(position - TAIL_BYTES, 0))
        return hashlib.blake2b(stream.read(min(position, TAIL_BYTES)), digest_size=16).hexdigest()
