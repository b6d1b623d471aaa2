"""A folder of logs as jobs and rotation change it, by name: on the machine's file system, or in memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from tests.support.tailing import amid


class Writer(Protocol):
    """A file that a job has open for writing."""

    @property
    def inode(self) -> int: ...
    @property
    def links(self) -> int: ...
    @property
    def appends(self) -> bool: ...
    def write(self, data: bytes) -> object: ...
    def close(self) -> None: ...


class Files(Protocol):
    """A folder, as jobs and rotation change it; `amid` and `failing` are of what runs inside."""

    def path(self, name: str) -> str: ...
    def exists(self, name: str) -> bool: ...
    def inode(self, name: str) -> int: ...
    def links(self, name: str) -> int: ...
    def read(self, name: str) -> bytes: ...
    def touch(self, name: str) -> None: ...
    def overwrite(self, name: str, data: bytes) -> None: ...
    def open(self, name: str, *, append: bool) -> Writer: ...
    def rename(self, name: str, other: str) -> None: ...
    def link(self, name: str, other: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def truncate(self, name: str) -> None: ...
    def give_time_of(self, name: str, other: str) -> None: ...
    def in_place(self) -> AbstractContextManager[None]: ...
    def amid(self, moment: int, then: Callable[[], object]) -> AbstractContextManager[None]: ...
    def failing(self, moment: int, number: int) -> AbstractContextManager[None]: ...
    def close(self) -> None: ...


class RealWriter:
    def __init__(self, path: Path, *, append: bool) -> None:
        self.appends = append
        self._file = path.open("ab" if append else "r+b", buffering=0)
        self._file.seek(0, os.SEEK_END)

    @property
    def inode(self) -> int:
        return os.fstat(self._file.fileno()).st_ino

    @property
    def links(self) -> int:
        return os.fstat(self._file.fileno()).st_nlink

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def close(self) -> None:
        self._file.close()


class RealFiles:
    """A folder on the machine's own file system."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def exists(self, name: str) -> bool:
        return (self._folder / name).exists()

    def inode(self, name: str) -> int:
        return (self._folder / name).stat().st_ino

    def links(self, name: str) -> int:
        return (self._folder / name).stat().st_nlink

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def touch(self, name: str) -> None:
        (self._folder / name).touch()

    def overwrite(self, name: str, data: bytes) -> None:
        (self._folder / name).write_bytes(data)

    def open(self, name: str, *, append: bool) -> RealWriter:
        return RealWriter(self._folder / name, append=append)

    def rename(self, name: str, other: str) -> None:
        (self._folder / name).rename(self._folder / other)

    def link(self, name: str, other: str) -> None:
        os.link(self._folder / name, self._folder / other)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def truncate(self, name: str) -> None:
        os.truncate(self._folder / name, 0)

    def give_time_of(self, name: str, other: str) -> None:
        status = (self._folder / other).stat()
        os.utime(self._folder / name, ns=(status.st_atime_ns, status.st_mtime_ns))

    def in_place(self) -> AbstractContextManager[None]:
        return nullcontext()

    def amid(self, moment: int, then: Callable[[], object]) -> AbstractContextManager[None]:
        return amid(moment, then)

    def failing(self, *_which: int) -> AbstractContextManager[None]:
        """Nothing fails by itself here; `tests/edges/test_errors.py` has broken disks."""
        return nullcontext()

    def close(self) -> None:
        shutil.rmtree(self._folder)
