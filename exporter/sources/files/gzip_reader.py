"""The rest of a log that was compressed before it was read to its end.

Unpacks in blocks, a bounded number a call. A .gz that the glob itself finds is refused as binary: nothing counts twice.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable

from exporter.sources.files.filesystem import OpenFile, closed_on_error
from exporter.sources.files.identity import Fingerprint

BLOCK_BYTES = 1 << 20
BLOCKS_A_STEP = 8  # 30 to 60 ms with zlib

_DAMAGE = (OSError, EOFError, zlib.error)


class GzipReader:
    """What a gzip file unpacks to, read forwards. A damaged file ends where the damage begins.

    Raises OSError where the file itself cannot be read, and can be asked again. Closes the file that it is given.
    """

    def __init__(self, file: OpenFile) -> None:
        with closed_on_error(file):
            self.status = file.status()
        self.path = file.path
        self._file, self._raw = file, file.stream()
        self._gzip = gzip.GzipFile(fileobj=self._raw)
        self._kept = b""
        self._start = 0  # where `_kept` begins

    def read(self, count: int, start: int) -> bytes:
        if start < self._start:
            self._rewind()
        while self._start + len(self._kept) < start + count:
            if not self._unpack(start):
                break
        return self._kept[start - self._start : start - self._start + count]

    def approach(self, start: int) -> bool:
        """Unpack a bounded amount towards `start`; False while more is needed."""
        return any(self._start + len(self._kept) >= start or not self._unpack(start) for _ in range(BLOCKS_A_STEP))

    def trailer(self) -> tuple[int, int]:
        """What it says of what it unpacks to (RFC 1952): its CRC-32, and its length modulo 2**32. While it is being
        written that means nothing.
        """
        end = self._file.read(8, max(0, self.status.st_size - 8))
        return int.from_bytes(end[:4], "little"), int.from_bytes(end[4:], "little")

    def data_after(self, start: int) -> int | None:
        return start

    def close(self) -> None:
        self._gzip.close()
        self._raw.close()

    def _unpack(self, needed_from: int) -> bool:
        """One block more; what lies before `needed_from` is let go. False at the end."""
        try:
            block = self._gzip.read(BLOCK_BYTES)
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno is not None:
                self._rewind()
                raise
            return False
        drop = max(0, min(needed_from - self._start, len(self._kept)))
        self._kept, self._start = self._kept[drop:] + block, self._start + drop
        return bool(block)

    def _rewind(self) -> None:
        self._gzip.rewind()
        self._kept, self._start = b"", 0


class Search:
    """Looks, step by step, for the gzip file that begins with what `mark` tells."""

    def __init__(self, mark: Fingerprint, candidates: Iterable[GzipReader]) -> None:
        self._mark = mark
        self._waiting = list(candidates)

    def step(self) -> GzipReader | None:
        """The file, once it is found. None: `over` tells whether the search goes on.

        Raises OSError when a file cannot be read. It is left out then: whoever finds nothing searches again.
        """
        candidate, mark = self._waiting.pop(0), self._mark
        with closed_on_error(candidate):
            if not candidate.approach(mark.window):
                self._waiting.insert(0, candidate)
                return None
            found = mark.holds(candidate.read(mark.length - mark.window, mark.window))
        if found:
            self.close()
            return candidate
        candidate.close()
        return None

    @property
    def over(self) -> bool:
        return not self._waiting

    def close(self) -> None:
        while self._waiting:
            self._waiting.pop().close()
