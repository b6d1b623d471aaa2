"""syslog(2): returns the whole ring buffer at each read, without numbers. For processes that only have CAP_SYSLOG."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from exporter.core.decoding import kernel_records
from exporter.sources.base import SourceStats
from exporter.sources.kernel.libc import SYSLOG_ACTION_READ_ALL, SYSLOG_ACTION_SIZE_BUFFER, klogctl
from exporter.sources.kernel.transport import Kept, Line, Place

LOOK_SECONDS = 2.0  # a look costs the kernel a walk over the whole ring
LOOK_BYTES = 4 << 20  # of a larger ring only the newest: a storm of 19,000 records a second (NPD#1168) fills 2 s of it


class SyslogRing(Kept):
    """The new lines of the ring buffer: those after the last line seen, which is found by its time and text."""

    def __init__(self, place: Place, stats: SourceStats) -> None:
        # The ring's size is without prefixes: READ_ALL adds some 20 bytes to each record, which takes 32 in the ring.
        self._buffer_bytes = min(2 * klogctl(SYSLOG_ACTION_SIZE_BUFFER), LOOK_BYTES)
        self._place = place
        self._stats = stats
        self._looked: float | None = None
        first = kernel_records.parse_header(next(kernel_records.from_syslog(self._text()), b""))
        if first and first.us is None:
            raise OSError(errno.ENODATA, "its lines carry no time; write 1 to /sys/module/printk/parameters/time")

    def read(self, now: float) -> Iterator[Line]:
        if self._looked is not None and 0 <= now - self._looked < LOOK_SECONDS:
            return
        text = self._text()
        start = kernel_records.find_in_syslog(text, self._place.us, self._place.same)
        if text and start is None and self._place.same:
            self._stats.drop("ring_wrapped")  # how many lines are gone, nobody can tell
        known_us = self._place.us if start is None else -1
        for line in kernel_records.from_syslog(text, start or 0):
            header = kernel_records.parse_header(line)
            if header is None or header.us is None or header.us <= known_us:
                continue
            run = self._place.same if header.us == self._place.us else ""
            self._place = Place(boot_id=self._place.boot_id, us=header.us, same=kernel_records.chain(run, line))
            yield Line(data=line, place=self._place)
        self._looked = now

    def fileno(self) -> int | None:
        return None

    def close(self) -> None: ...

    def _text(self) -> bytes:
        buffer = bytearray(self._buffer_bytes)
        size = klogctl(SYSLOG_ACTION_READ_ALL, buffer)
        return bytes(memoryview(buffer)[:size])
