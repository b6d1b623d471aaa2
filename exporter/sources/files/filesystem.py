"""Every system call by which logs and their folders are looked at: each may raise OSError. Knows nothing of logs.

Calls `os`, `fcntl` and `time` only, so that a test can put a file system in memory in their place.

A job's owner decides what stands in the job's folder: links, FIFOs, devices, and other things a moment later. So a path
is opened with O_PATH first, which opens nothing, checked, and opened through /proc/self/fd: only regular files
below the roots, without waiting and without disturbing anyone. The daemon may read what a link's owner may not: where a
user's link is on the way, only a file of that user is read.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import resource
import signal
import stat as modes
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol

from exporter.sources.calls import Stalled, ask, let_go
from exporter.sources.holes import data_after, has_hole

_HANDLE_FLAGS = os.O_PATH | os.O_CLOEXEC
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
KINDS = {
    modes.S_IFIFO: "fifo",
    modes.S_IFSOCK: "socket",
    modes.S_IFCHR: "device",
    modes.S_IFBLK: "device",
    modes.S_IFDIR: "directory",
}
_REASONS = {
    errno.EACCES: "unreadable",
    errno.EPERM: "unreadable",
    errno.ELOOP: "link_loop",
    errno.EMFILE: "too_many_open",
    errno.ENFILE: "too_many_open",
    errno.ESTALE: "stale",
    errno.EIO: "io_error",
}
_FS_IOC_GETVERSION = 0x80087601  # linux/fs.h: _IOR('v', 1, long)
# Errors of a disk, a server or the kernel that prove nothing about a file: the operation is retried.
NO_ANSWER = frozenset({
    errno.EAGAIN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EINTR, errno.EIO, errno.EMFILE, errno.ENETDOWN,
    errno.ENETUNREACH, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOTCONN, errno.EREMOTEIO, errno.ESHUTDOWN,
    errno.ESTALE, errno.ETIMEDOUT,
})  # fmt: skip
BATCH_ENTRIES = 500  # of a folder, in one call
TICK_NS = 20_000_000  # file systems stamp by the kernel's tick, 10 ms at most: two changes within one look the same
WHOLE_SECONDS_NS = 2_000_000_000  # for those that stamp whole seconds: ext3, FAT, some servers
MAX_LINKS = 40  # on the way to one file, as for the kernel
ANOTHER_USERS = "another_users_file"


class Refused(Exception):
    """A path that is not read; `str()` is the reason, one word for a metric's label."""


class Reader(Protocol):
    """Bytes of a log by offset: a file, or what a compressed file unpacks to."""

    def read(self, count: int, start: int) -> bytes:
        """Up to `count` bytes from `start`; fewer only at the end."""

    def data_after(self, start: int) -> int | None:
        """Where the first byte from `start` on lies that is not in a hole; None when all the rest is one."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file, open for reading; `path` is what it was opened as. Whatever is asked of it may raise OSError."""

    descriptor: int
    path: str

    def read(self, count: int, start: int) -> bytes:
        return ask(self.path, os.pread, self.descriptor, count, start)

    def status(self) -> os.stat_result:
        return ask(self.path, os.fstat, self.descriptor)

    def stream(self) -> BinaryIO:
        """For who reads it from its beginning to its end, and closes it."""
        return io.BufferedReader(_Stream(self))

    def data_after(self, start: int) -> int | None:
        return ask(self.path, data_after, self.descriptor, start)

    def has_hole(self, start: int, stop: int) -> bool:
        return ask(self.path, has_hole, self.descriptor, start, stop)

    def is_written_to(self) -> bool:
        """Whether somebody has the file open for writing, as far as can be told: a lease is granted where nobody has.

        It needs the file's owner or CAP_LEASE, and a local file system. Only for files without a name: the lease is let
        go at once, but who opened the file meanwhile would wait, or be told EWOULDBLOCK.
        """
        try:
            for operation, argument in (
                (fcntl.F_SETSIG, signal.SIGURG),  # in place of SIGIO, which ends a process
                (fcntl.F_SETLEASE, fcntl.F_RDLCK),
                (fcntl.F_SETLEASE, fcntl.F_UNLCK),
            ):
                ask(self.path, fcntl.fcntl, self.descriptor, operation, argument)
        except OSError as error:
            return error.errno == errno.EAGAIN
        return False

    def generation(self) -> int | None:
        """The inode's generation, which differs when a number is used again; None where the file system does not tell.

        ext4 gives a freed number to the very next file, and two runs of one job can be the same to the last byte.
        """
        answer = bytearray(8)
        try:
            ask(self.path, fcntl.ioctl, self.descriptor, _FS_IOC_GETVERSION, answer)
        except OSError as error:
            if error.errno in NO_ANSWER:
                raise
            return None
        return int.from_bytes(answer[:4], "little")

    def location(self) -> str:
        """Where it lies now, links resolved, as the kernel tells it."""
        return os.readlink(f"/proc/self/fd/{self.descriptor}").removesuffix(" (deleted)")

    def close(self) -> None:
        let_go(self.path, partial(os.close, self.descriptor))


class _Stream(io.RawIOBase):
    """The bytes of an open file, from its beginning."""

    def __init__(self, file: OpenFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (self._at if whence == os.SEEK_CUR else 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        block = self._file.read(len(buffer), self._at)
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders, links resolved, below which files may lie."""

    folders: tuple[str, ...]

    @classmethod
    def of(cls, folders: Iterable[str]) -> Roots:
        return cls(tuple(dict.fromkeys(_real_or_same(folder) for folder in folders)))

    def hold(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in self.folders)

    def status_of(self, path: str) -> os.stat_result:
        """What a path leads to, if that may be read or is not a regular file. Raises as `open` does."""
        return ask(path, self._status_of, path)

    def open(self, path: str) -> OpenFile:
        """Open a regular file that lies below these folders. Raises Refused, or the OSError that the system gave."""
        return ask(path, self._open, path)

    def _status_of(self, path: str) -> os.stat_result:
        with self._handle(path) as handle:
            return handle.status()

    def _open(self, path: str) -> OpenFile:
        with self._handle(path) as handle:
            _require_regular(handle.status())  # opening a device or a FIFO does something to it
            if not self.hold(handle.location()):
                raise Refused("outside_roots")
            return OpenFile(os.open(f"/proc/self/fd/{handle.descriptor}", _FLAGS), path)

    @contextmanager
    def _handle(self, path: str) -> Iterator[OpenFile]:
        """Take hold of what a path leads to, unless a user's link leads to another user's file."""
        handle, owners = _reached(path)
        try:
            status = handle.status()
            if owners - {status.st_uid, *_trusted()} or _is_linked_by_another(handle, status):
                raise Refused(ANOTHER_USERS)
            yield handle
        finally:
            handle.close()


def _reached(path: str) -> tuple[OpenFile, set[int]]:
    """What a path leads to, and the owners of the symbolic links on the way, whoever changes the way meanwhile.

    Where the kernel tells the same path of what was opened, no link was on the way.
    """
    for _ in range(2):  # it may have been moved between the two calls
        handle = OpenFile(os.open(path, _HANDLE_FLAGS), path)
        with closed_on_error(handle):
            if handle.location() == path:
                return handle, set()
        handle.close()
        if realpath(path) != path:
            break
    return _walked(path)


def _walked(path: str) -> tuple[OpenFile, set[int]]:
    """The same by one step after the other, each taken from what the step before has hold of."""
    owners: set[int] = set()
    parts, links = path.split("/")[::-1], 0
    here = OpenFile(os.open("/", _HANDLE_FLAGS), path)
    try:
        while parts:
            if (name := parts.pop()) in ("", "."):
                continue
            step = OpenFile(os.open(f"/proc/self/fd/{here.descriptor}/{name}", _HANDLE_FLAGS | os.O_NOFOLLOW), path)
            with closed_on_error(step):
                status = step.status()
                target = os.readlink("", dir_fd=step.descriptor) if modes.S_ISLNK(status.st_mode) else None
            if target is not None:
                step.close()
                owners.add(status.st_uid)
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                parts += target.split("/")[::-1]
                if not target.startswith("/"):
                    continue
                step = OpenFile(os.open("/", _HANDLE_FLAGS), path)
            here.close()
            here = step
    except BaseException:
        here.close()
        raise
    return here, owners


def _trusted() -> tuple[int, int]:
    """The users whose links lead anywhere below the roots: root, and the daemon's own."""
    return 0, os.geteuid()


def _is_linked_by_another(handle: OpenFile, status: os.stat_result) -> bool:
    """Whether a file that not everybody may read has a further name, in a folder where others than its owner and root may
    make names. The kernel refuses to make such hard links only with fs.protected_hardlinks=1.
    """
    if status.st_nlink < 2 or status.st_mode & modes.S_IROTH or not modes.S_ISREG(status.st_mode):
        return False
    folder = os.stat(os.path.dirname(handle.location()))
    is_shared = folder.st_mode & (modes.S_IWGRP | modes.S_IWOTH)
    return bool(is_shared) or folder.st_uid not in (status.st_uid, *_trusted())


def stat(path: str) -> os.stat_result:
    return ask(path, os.stat, path)


def is_there(path: str) -> bool:
    """Whether something has the path, be it a link to nowhere."""
    return _unless_stalled(path, os.path.lexists)


def is_link(path: str) -> bool:
    return _unless_stalled(path, os.path.islink)


def is_folder(path: str) -> bool:
    return _unless_stalled(path, os.path.isdir)


def realpath(path: str) -> str:
    real: str = ask(path, os.path.realpath, path)
    return real


def stat_or_none(path: str) -> os.stat_result | None:
    """The status of a path; None where the system gives an error."""
    try:
        return stat(path)
    except OSError:
        return None


def may_list(folder: str) -> bool:
    """Whether a folder may be listed. Raises Stalled."""
    return ask(folder, lambda: os.access(folder, os.R_OK | os.X_OK, effective_ids=True))


def entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """What stands in a folder, in no order."""
    listing = ask(folder, os.scandir, folder)
    is_stalled = False
    try:
        while batch := ask(folder, _batch, listing):
            yield from batch
    except Stalled:
        is_stalled = True  # and in use, until the call returns
        raise
    finally:
        if not is_stalled:
            listing.close()


def folders_in(folder: str) -> Iterator[str]:
    """The paths of the folders in a folder, without links to others."""
    return (entry.path for entry in entries(folder) if entry.is_dir(follow_symlinks=False))


def leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return ask(entry.path, entry.is_dir) if entry.is_symlink() else entry.is_dir()
    except OSError:  # a link that leads in a circle
        return False


def _batch(listing: Iterator[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """The next entries, each with what a folder may not tell of them (DT_UNKNOWN)."""
    batch = list(islice(listing, BATCH_ENTRIES))
    for entry in batch:
        with suppress(OSError):
            entry.is_symlink()
            entry.is_dir(follow_symlinks=False)
    return batch


def _unless_stalled(path: str, check: Callable[[str], bool]) -> bool:
    try:
        return ask(path, check, path)
    except Stalled:
        return False


def _real_or_same(folder: str) -> str:
    try:
        return realpath(folder)
    except Stalled:
        return folder


def read_mountinfo() -> str:
    """What this process sees mounted, as proc(5) tells it."""
    try:
        return Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def most_open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@contextmanager
def closed_on_error(reader: Reader) -> Iterator[None]:
    """Close what was opened, if what is done with it raises."""
    try:
        yield
    except BaseException:
        reader.close()
        raise


def reason_of(error: OSError) -> str:
    """The one word that a metric's label gives for an error."""
    number = error.errno or 0
    return _REASONS.get(number) or errno.errorcode.get(number, "unknown").lower()


def _require_regular(status: os.stat_result) -> None:
    kind = modes.S_IFMT(status.st_mode)
    if kind != modes.S_IFREG:
        raise Refused(KINDS.get(kind, "special"))


def now_ns() -> int:
    """Nanoseconds of the clock by which this machine's file systems stamp."""
    return time.time_ns()


def monotonic() -> float:
    """Seconds of a clock that nobody sets."""
    return time.monotonic()


def may_stay(stamp: int) -> bool:
    """Whether a file of which `stamp` is the ctime may be changed again just now and keep it."""
    tick = TICK_NS if stamp % 10**9 else WHOLE_SECONDS_NS
    return abs(now_ns() - stamp) <= tick + TICK_NS
