"""The node journal: one JSON object a line, in segments of bounded size, the oldest of which go first.

Records reach it through the state's outbox, so each is there at least once; readers drop repeated ids.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.store import private_files

SEGMENTS = 8  # the bound is kept in steps of an eighth: what is lost to the bound is at most an eighth of it
OPENING_SHARE = 4  # of a segment at most a quarter repeats what is known: the facts of a node have some 5 kB


class End(NamedTuple):
    """Behind the last record: the segment's number, and an offset in it."""

    segment: int
    offset: int


class Journal:
    """Appends to `FOLDER/journal-NNNNNN.jsonl`. Raises OSError when it cannot: the caller counts and tries again.

    `opening` gives the record that each segment begins with, so that the segments that are left tell it when the one that
    it was written to is gone; "" for none. `before_drop` is called with the number and path of each segment that is about
    to be deleted.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        opening: Callable[[], str] = lambda: "",
        before_drop: Callable[[int, Path], None] = lambda _number, _path: None,
    ) -> None:
        self.folder = folder
        self._opening = opening
        self._before_drop = before_drop
        self._segment_bytes = max(max_bytes // SEGMENTS, 4096)
        self._descriptor: int | None = None
        self._number = 1
        self._size = 0
        self.dropped_segments = 0

    @property
    def end(self) -> End:
        """Behind what is known to be on disk."""
        if self._descriptor is not None:
            return End(self._number, self._size)
        found = segments_in(self.folder)
        return End(found[-1][0], found[-1][1].stat().st_size) if found else End(1, 0)

    def append(self, records: Sequence[str]) -> None:
        """Write records and have them on disk before returning."""
        lines = deque(f"{record}\n".encode() for record in records)
        try:
            while lines:
                descriptor = self._writable(len(lines[0]))
                data = bytearray(lines.popleft())
                while lines and self._size + len(data) + len(lines[0]) <= self._segment_bytes:
                    data += lines.popleft()
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
                self._size += len(data)
        except OSError:
            self.close()  # the next one begins by ending the line that this one may have cut short
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _writable(self, more: int) -> int:
        """The segment to write to, with room for `more` bytes unless it is empty."""
        if self._descriptor is not None and not self._is_in_place(self._descriptor):
            self.close()  # someone has removed the file, or moved it away
        segments = segments_in(self.folder)
        number = segments[-1][0] if segments else 1
        descriptor = self._descriptor if self._descriptor is not None else self._start(number)
        if self._size and self._size + more > self._segment_bytes:
            self.close()
            descriptor = self._start(number + 1)
        return descriptor

    def _is_in_place(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(segment_path(self.folder, self._number)), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _start(self, number: int) -> int:
        private_files.make_folder(self.folder)
        descriptor = private_files.open_file(segment_path(self.folder, number), os.O_RDWR | os.O_APPEND)
        self._descriptor, self._number = descriptor, number
        self._size = os.fstat(descriptor).st_size
        if self._size and os.pread(descriptor, 1, self._size - 1) != b"\n":
            self._size += os.write(descriptor, b"\n")  # a write that was cut short: its record comes again
        if not self._size:
            self._open_with(descriptor)
        for dropped, old in segments_in(self.folder)[:-SEGMENTS]:
            self._before_drop(dropped, old)
            old.unlink(missing_ok=True)
            self.dropped_segments += 1
        return descriptor

    def _open_with(self, descriptor: int) -> None:
        line = f"{self._opening()}\n".encode()
        if 1 < len(line) <= self._segment_bytes // OPENING_SHARE:
            while line:
                written = os.write(descriptor, line)
                self._size, line = self._size + written, line[written:]


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"journal-{number:06}.jsonl"


def segments_in(folder: Path) -> list[tuple[int, Path]]:
    """The segments that are there, by number."""
    found = []
    for path in folder.glob("journal-*.jsonl"):
        number = path.stem.removeprefix("journal-")
        if number.isdecimal():
            found.append((int(number), path))
    return sorted(found)
