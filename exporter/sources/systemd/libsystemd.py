"""Reads entries of the systemd journal, oldest first. The only module that uses libsystemd (extra `journald`).

Its users decide which entries matter.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

Field = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One entry, its fields as text. realtime_us, monotonic_us: when journald received it."""

    cursor: str
    boot_id: str  # with dashes, as in /proc/sys/kernel/random/boot_id
    realtime_us: int
    monotonic_us: int
    fields: Mapping[str, str]


class JournalReader(Protocol):
    """An open journal. Any method may raise OSError, for example during rotation (systemd#36247): open it again."""

    def seek(self, cursor: str) -> bool:
        """Seek after the entry of this cursor. False if it was deleted: then before the oldest later entry."""

    def seek_boot(self, boot_id: str) -> None:
        """Seek the first entry of this boot, or anywhere if the boot has no entry."""

    def seek_end(self) -> str:
        """Seek after the last entry and return its cursor, or "" for an empty journal."""

    def next(self) -> JournalEntry | None:
        """The next entry; None at the end."""

    def close(self) -> None: ...


OpenJournal = Callable[[Field | None, str | None], JournalReader]


class SystemdJournal:
    """The host's journal, or that of a mounted `directory`: all entries, or those with one field's value."""

    def __init__(self, only: Field | None, directory: str | None) -> None:
        try:
            from cysystemd.reader import JournalEvent, JournalOpenMode, JournalReader, Rule
        except ImportError:
            from exporter.process.extras import how_to_install

            raise OSError(errno.ENOENT, f"cysystemd is not installed; {how_to_install('journald')}") from None
        self._reader = JournalReader()
        self._unchanged = JournalEvent.NOP
        self._next: JournalEntry | None = None
        with _os_errors():
            if directory is None:
                self._reader.open(JournalOpenMode.SYSTEM)
            else:
                self._reader.open_directory(directory)
            if only:
                self._reader.add_filter(Rule(*only))
            self._reader.seek_head()
            if self._reader.next() is None:  # libsystemd opens what it may not read, and calls it empty
                raise OSError(errno.ENODATA, "no journal that is readable here holds such entries")

    def seek(self, cursor: str) -> bool:
        with _os_errors():
            self._reader.seek_cursor(cursor.encode())
        self._next = self.next()
        is_there = self._next is not None and self._next.cursor == cursor
        if is_there:
            self._next = None
        return is_there

    def seek_boot(self, boot_id: str) -> None:
        with _os_errors():
            self._reader.seek_monotonic_usec(UUID(boot_id), 0)

    def seek_end(self) -> str:
        with _os_errors():
            self._reader.seek_tail()
            self._reader.previous()
        last = self.next()
        return last.cursor if last else ""

    def next(self) -> JournalEntry | None:
        if self._next:
            entry, self._next = self._next, None
            return entry
        with _os_errors():
            event = self._reader.next()
            if event is None and self._reader.wait(0) != self._unchanged:  # looks for new files, too
                event = self._reader.next()
            return _entry(event) if event else None

    def close(self) -> None:
        del self._reader  # libsystemd's handle goes with it


def _entry(event: Any) -> JournalEntry:
    return JournalEntry(
        cursor=event.cursor.decode(),
        boot_id=str(event.boot_id),
        realtime_us=event.get_realtime_usec(),
        monotonic_us=event.get_monotonic_usec(),
        fields={name: value if isinstance(value, str) else value[0] for name, value in event.data.items()},
    )


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raise OSError instead of cysystemd's SystemError("Bad message", "EBADMSG") for file and permission errors."""
    try:
        yield
    except SystemError as error:
        message, name = map(str, (*error.args, "", "")[:2])
        raise OSError(getattr(errno, name, errno.EIO), message) from error
