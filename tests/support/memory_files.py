"""A folder of logs in memory, with a clock that only the test moves, in place of what `exporter.sources.files` asks of a
file system. Jobs and rotation change it by name; the tailer sees it through `os` and `fcntl` as they are called there.

Inode numbers are used again at once, as ext4 does, or never, as tmpfs does. Times are those of the kernel's tick.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from exporter.sources.files import filesystem

ROOT = "/logs"
ROOT_INODE = 2
DEVICE = 8
BEGIN = 1_800_000_000.0
CALL_NS = 20_000  # what a system call takes
TICK_NS = 4_000_000


class Status(NamedTuple):
    st_mode: int
    st_ino: int
    st_dev: int
    st_nlink: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_uid: int = 1000


@dataclass(slots=True, eq=False)
class File:
    inode: int
    generation: int
    modified: int
    changed: int
    data: bytes = b""
    links: int = 0
    opened: int = 0
    writers: int = 0


@dataclass(slots=True, eq=False)
class Name:
    """One name of a file. A descriptor goes on telling it, also when it is changed."""

    path: str
    file: File
    is_deleted: bool = False


@dataclass(slots=True)
class Writer:
    """A file that a job has open for writing."""

    files: MemoryFiles
    file: File
    appends: bool

    @property
    def inode(self) -> int:
        return self.file.inode

    @property
    def links(self) -> int:
        return self.file.links

    def write(self, data: bytes) -> None:
        self.files.add(self.file, data)

    def close(self) -> None:
        self.file.writers -= 1
        self.files.let_go(self.file)


class GlobMatch(NamedTuple):
    """What `os.scandir` gives."""

    name: str
    path: str
    number: int
    is_folder: bool = False

    def inode(self) -> int:
        return self.number

    def is_dir(self, **_how: bool) -> bool:
        return self.is_folder

    def is_symlink(self) -> bool:
        return False


@dataclass
class MemoryFiles:
    """One folder, ROOT."""

    reuses_inodes: bool = False
    now: Callable[[], float] = lambda: BEGIN
    names: dict[str, Name] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._spent = 0
        self._generations = 0
        self._next_inode = 100
        self._free: list[int] = []
        self._open: dict[int, Name] = {}
        self._next_descriptor = 1000
        self._folder_changed = self.time_ns()
        self._changes: list[str] = []  # paths, since somebody asked
        self._until: int | None = None  # calls until `_then`
        self._then: Callable[[], object] = lambda: None

    # -- time

    def time_ns(self) -> int:
        return int(self.now() * 1e9) + self._spent

    def monotonic(self) -> float:
        return self.time_ns() / 1e9

    def _stamp(self) -> int:
        self._spent += CALL_NS
        return self.time_ns() // TICK_NS * TICK_NS

    def take_changes(self) -> list[str]:
        """The paths that inotify would tell of, since the last call."""
        changes, self._changes = self._changes, []
        return changes

    # -- what jobs and rotation do

    def path(self, name: str) -> str:
        return f"{ROOT}/{name}"

    def exists(self, name: str) -> bool:
        return self.path(name) in self.names

    def inode(self, name: str) -> int:
        return self._file(name).inode

    def links(self, name: str) -> int:
        return self._file(name).links

    def read(self, name: str) -> bytes:
        return self._file(name).data

    def touch(self, name: str) -> None:
        self._made(name)

    def overwrite(self, name: str, data: bytes) -> None:
        file = self._made(name)
        file.data = b""
        self.add(file, data)

    def open(self, name: str, *, append: bool) -> Writer:
        file = self._made(name)
        file.writers += 1
        return Writer(self, file, append)

    def rename(self, name: str, other: str) -> None:
        self._changes += [self.path(name), self.path(other)]
        moved = self.names.pop(self.path(name))
        if self.exists(other):
            self.remove(other)
        moved.path = self.path(other)
        self.names[moved.path] = moved
        moved.file.changed = self._folder_changed = self._stamp()

    def link(self, name: str, other: str) -> None:
        file = self._file(name)
        file.links += 1
        self._changes.append(self.path(other))
        self.names[self.path(other)] = Name(self.path(other), file)
        file.changed = self._folder_changed = self._stamp()

    def remove(self, name: str) -> None:
        self._changes.append(self.path(name))
        gone = self.names.pop(self.path(name))
        gone.is_deleted = True
        gone.file.links -= 1
        gone.file.changed = self._folder_changed = self._stamp()
        self.let_go(gone.file)

    def truncate(self, name: str) -> None:
        file = self._file(name)
        file.data = b""
        self.add(file, b"")

    def give_time_of(self, name: str, other: str) -> None:
        """`name` gets the modification time of `other`."""
        file = self._file(name)
        file.modified, file.changed = self._file(other).modified, self._stamp()

    def close(self) -> None:
        """Nothing is left behind."""

    def add(self, file: File, data: bytes) -> None:
        file.data += data
        file.modified = file.changed = self._stamp()
        self._changes += [path for path, name in self.names.items() if name.file is file]

    def let_go(self, file: File) -> None:
        if self.reuses_inodes and not (file.links or file.opened or file.writers):
            self._free.append(file.inode)

    def _file(self, name: str) -> File:
        return self.names[self.path(name)].file

    def _made(self, name: str) -> File:
        path = self.path(name)
        if path not in self.names:
            self._generations += 1
            now = self._stamp()
            file = File(self._new_inode(), self._generations, now, now, links=1)
            self.names[path] = Name(path, file)
            self._folder_changed = now
            self._changes.append(path)
        return self.names[path].file

    def _new_inode(self) -> int:
        if self._free:
            return self._free.pop()
        self._next_inode += 1
        return self._next_inode

    # -- what the tailer sees

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """This is the file system that the tailer sees."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(filesystem, "os", self._os())
            patch.setattr(filesystem, "fcntl", self._fcntl())
            patch.setattr(filesystem, "time", SimpleNamespace(time_ns=self.time_ns, monotonic=self.monotonic))
            yield

    @contextmanager
    def amid(self, moment: int, then: Callable[[], object]) -> Iterator[None]:
        """Let `then` happen before the system call number `moment` of what runs inside, or behind it if it makes fewer."""
        self._until, self._then = moment, then
        try:
            yield
        finally:
            late, self._until = self._until is not None, None
        if late:
            then()

    @contextmanager
    def failing(self, moment: int, number: int) -> Iterator[None]:
        """Let the system call number `moment` of what runs inside fail."""

        def fail() -> None:
            raise OSError(number, os.strerror(number))

        self._until, self._then = moment, fail
        try:
            yield
        finally:
            self._until = None

    def _called(self) -> None:
        self._spent += CALL_NS
        if self._until is None:
            return
        if self._until == 0:
            self._until = None
            self._then()
        else:
            self._until -= 1

    def _os(self) -> SimpleNamespace:
        constants = {
            name: value for name, value in vars(os).items() if name.isupper() or name.startswith(("O_", "SEEK"))
        }
        path = SimpleNamespace(
            lexists=self._is_there,
            islink=lambda _path: False,
            isdir=lambda path: path == ROOT,
            realpath=lambda path: path,
        )
        calls = {
            "open": self._os_open, "close": self._os_close, "pread": self._pread, "fstat": self._fstat, "stat": self._stat,
            "lseek": self._lseek, "readlink": self._readlink, "scandir": self._scandir,
            "access": lambda *_args, **_more: True, "path": path, "geteuid": lambda: 0,
        }  # fmt: skip
        return SimpleNamespace(**constants, **calls)

    def _fcntl(self) -> SimpleNamespace:
        constants = {name: value for name, value in vars(fcntl).items() if name.isupper()}
        return SimpleNamespace(**constants, fcntl=self._lease, ioctl=self._generation)

    def _is_there(self, path: str) -> bool:
        try:
            self._called()
        except OSError:  # `os.path` knows no other answer
            return False
        return path == ROOT or path in self.names

    def _named(self, path: str) -> Name:
        if path.startswith("/proc/self/fd/"):
            return self._open[int(path.rpartition("/")[2])]
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.names[path]

    def _os_open(self, path: str, _flags: int) -> int:
        self._called()
        name = self._named(path)
        self._next_descriptor += 1
        self._open[self._next_descriptor] = name
        name.file.opened += 1
        return self._next_descriptor

    def _os_close(self, descriptor: int) -> None:
        file = self._open.pop(descriptor).file
        file.opened -= 1
        self.let_go(file)

    def _pread(self, descriptor: int, count: int, start: int) -> bytes:
        self._called()
        return self._open[descriptor].file.data[start : start + count]

    def _fstat(self, descriptor: int) -> Status:
        self._called()
        return self._status(self._open[descriptor].file)

    def _stat(self, path: str) -> Status:
        self._called()
        if path == ROOT:
            return Status(stat.S_IFDIR | 0o755, ROOT_INODE, DEVICE, 2, 0, self._folder_changed, self._folder_changed)
        return self._status(self._named(path).file)

    @staticmethod
    def _status(file: File) -> Status:
        return Status(stat.S_IFREG | 0o644, file.inode, DEVICE, file.links, len(file.data), file.modified, file.changed)

    def _lseek(self, descriptor: int, start: int, whence: int) -> int:
        """As of files without holes."""
        self._called()
        length = len(self._open[descriptor].file.data)
        if start >= length:
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        return length if whence == os.SEEK_HOLE else start

    def _readlink(self, path: str) -> str:
        self._called()
        name = self._named(path)
        return name.path + " (deleted)" * name.is_deleted

    def _scandir(self, folder: str) -> Iterator[GlobMatch]:
        self._called()
        if folder != ROOT:
            return (entry for entry in [GlobMatch(os.path.basename(ROOT), ROOT, ROOT_INODE, is_folder=True)])
        names = list(self.names.values())
        return (GlobMatch(os.path.basename(name.path), name.path, name.file.inode) for name in names)

    def _lease(self, descriptor: int, command: int, value: int) -> None:
        self._called()
        if command == fcntl.F_SETLEASE and value == fcntl.F_RDLCK and self._open[descriptor].file.writers:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _generation(self, descriptor: int, _command: int, answer: bytearray) -> None:
        self._called()
        if not self.reuses_inodes:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        answer[:4] = self._open[descriptor].file.generation.to_bytes(4, "little")
