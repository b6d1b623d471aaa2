"""/dev/kmsg: each read returns one numbered record, so lost records are counted exactly."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from exporter.core.decoding import kernel_records
from exporter.sources.kernel.transport import Kept, Line, Place

PATH = "/dev/kmsg"
READS_A_POLL = 1 << 16  # skipping what is known takes a microsecond a record; a ring of 2 MiB holds at most this many
RECORD_BYTES = 16384  # twice CONSOLE_EXT_LOG_MAX, the largest record: a smaller read is refused with EINVAL
_NUMBER = (1, 11)  # Documentation/admin-guide/devices.txt
_SURVIVED = (errno.EPIPE, errno.ECONNRESET, errno.EINVAL)


class Device(Kept):
    """The kernel's ring buffer through an open descriptor, starting at its oldest record (dev-kmsg)."""

    def __init__(self, descriptor: int, place: Place) -> None:
        self._fd = descriptor
        self._place = place

    @classmethod
    def open(cls, path: str, place: Place) -> Device:
        status = os.stat(path)
        number = os.major(status.st_rdev), os.minor(status.st_rdev)
        if not stat.S_ISCHR(status.st_mode) or number != _NUMBER:
            # LXC and kind link it to a console: that would look idle for ever, and lose the console's input to us
            raise OSError(errno.ENODEV, f"{path} is not the kernel's log device (1:11)")
        return cls(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), place)

    def read(self, now: float) -> Iterator[Line]:  # noqa: ARG002 (some ways need the time)
        for _ in range(READS_A_POLL):
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _SURVIVED:
                    raise
                continue  # overtaken by the ring (EPIPE), or one unreadable record: the next number tells how many
            if not record:
                return
            header = kernel_records.parse_header(record)
            if header:
                if self._is_known(header):
                    continue
                us = self._place.us if header.us is None else header.us
                self._place = Place(boot_id=self._place.boot_id, us=us, seq=header.seq)
            yield Line(data=kernel_records.fold(record), place=self._place)

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    def _is_known(self, header: kernel_records.Header) -> bool:
        if self._place.seq is not None and header.seq is not None:
            return header.seq <= self._place.seq
        return header.us is not None and header.us <= self._place.us  # the place comes from a way without numbers
