"""The node journal: records as JSON lines, in segment files of bounded size; the oldest segment is deleted first.

Records arrive through `exporter.store.outbox`, each at least once; readers discard repeated ids. Clients that copy the
journal read ranges of its segments.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from exporter.store.safe_open import make_private_folder, open_private

# In one range. A line of the journal is shorter (see MAX_LINE of exporter.outputs.journal_reader), so a range has a whole one.
MAX_RANGE_BYTES = 4 << 20
SEGMENTS = 8  # so one deletion removes at most an eighth of the journal
FACTS_SHARE = 4  # a record of facts takes at most a quarter of a segment; that of a node has some 5 kB


class JournalEnd(NamedTuple):
    """The end of a journal: the number of its last segment, and the offset after that segment's last record."""

    segment: int
    offset: int


class Journal:
    """Appends records to `FOLDER/journal-NNNNNN.jsonl` and deletes the oldest segments.

    facts: returns the node's facts as a record; each segment begins with it, so that the facts outlive deleted segments.
    before_drop: called with the number and path of each segment that is about to be deleted.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        facts: Callable[[], str] = lambda: "",
        before_drop: Callable[[int, Path], None] = lambda _number, _path: None,
    ) -> None:
        self.folder = folder
        self._facts = facts
        self._before_drop = before_drop
        self._segment_bytes = max(max_bytes // SEGMENTS, 4096)
        self._descriptor: int | None = None
        self._number = 1
        self._size = 0
        self.dropped_segments = 0

    @property
    def end(self) -> JournalEnd:
        """The end of what is known to be on disk."""
        if self._descriptor is not None:
            return JournalEnd(self._number, self._size)
        segments = segments_in(self.folder)
        return JournalEnd(segments[-1][0], segments[-1][1].stat().st_size) if segments else JournalEnd(1, 0)

    def append(self, records: Sequence[str]) -> None:
        """Write records and wait until they are on disk. Raises OSError; the caller then appends them again."""
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
            self.close()  # opening the segment again ends a line that is incomplete
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _writable(self, size: int) -> int:
        """A descriptor of the segment to write to, with room for `size` bytes unless the segment is empty."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            self.close()  # the file was deleted or renamed
        segments = segments_in(self.folder)
        number = segments[-1][0] if segments else 1
        descriptor = self._descriptor if self._descriptor is not None else self._open_segment(number)
        if self._size and self._size + size > self._segment_bytes:
            self.close()
            descriptor = self._open_segment(number + 1)
        return descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(segment_path(self.folder, self._number)), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _open_segment(self, number: int) -> int:
        make_private_folder(self.folder)
        descriptor = open_private(segment_path(self.folder, number), os.O_RDWR | os.O_APPEND)
        self._descriptor, self._number = descriptor, number
        self._size = os.fstat(descriptor).st_size
        if self._size and os.pread(descriptor, 1, self._size - 1) != b"\n":
            self._size += os.write(descriptor, b"\n")  # ends an incomplete line; its record is written again
        if not self._size:
            self._write_facts(descriptor)
        for dropped, old in segments_in(self.folder)[:-SEGMENTS]:
            self._before_drop(dropped, old)
            old.unlink(missing_ok=True)
            self.dropped_segments += 1
        return descriptor

    def _write_facts(self, descriptor: int) -> None:
        line = f"{self._facts()}\n".encode()
        if 1 < len(line) <= self._segment_bytes // FACTS_SHARE:
            while line:
                written = os.write(descriptor, line)
                self._size, line = self._size + written, line[written:]


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"journal-{number:06}.jsonl"


def segments_in(folder: Path) -> list[tuple[int, Path]]:
    """Number and path of each existing segment, oldest first."""
    segments = []
    for path in folder.glob("journal-*.jsonl"):
        number = path.stem.removeprefix("journal-")
        if number.isdecimal():
            segments.append((int(number), path))
    return sorted(segments)


class Segment(NamedTuple):
    """An existing segment. All but the last one are complete: nothing is written to them any more."""

    number: int
    size: int


def list_segments(folder: Path) -> list[Segment]:
    """The existing segments, oldest first."""
    segments = []
    for number, path in segments_in(folder):
        with suppress(FileNotFoundError):  # deleted meanwhile
            segments.append(Segment(number, path.stat().st_size))
    return segments


def read_range(folder: Path, number: int, offset: int, count: int) -> bytes:
    """Up to `count` bytes from an offset on, cut after the last newline. Raises FileNotFoundError for a deleted segment.

    A first line that is longer is returned whole if MAX_RANGE_BYTES have room for it, else the beginning of it.
    """
    with segment_path(folder, number).open("rb") as file:
        data = os.pread(file.fileno(), count, offset)
        if b"\n" not in data and len(data) == count < MAX_RANGE_BYTES:
            data = os.pread(file.fileno(), MAX_RANGE_BYTES, offset)
            data = data[: data.find(b"\n") + 1] or data
    if len(data) == MAX_RANGE_BYTES and b"\n" not in data:
        return data
    return data[: data.rfind(b"\n") + 1]
