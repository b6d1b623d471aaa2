"""A real FUSE file system that shows a folder, and whose calls can be kept waiting: a server that is gone, for the kernel."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest

OPCODES = {
    1: "lookup", 2: "forget", 3: "getattr", 5: "readlink", 14: "open", 15: "read", 17: "statfs", 18: "release", 25: "flush",
    26: "init", 27: "opendir", 28: "readdir", 29: "releasedir", 34: "access", 36: "interrupt", 38: "destroy",
    42: "batch_forget",
}  # fmt: skip
UNANSWERED = {"forget", "batch_forget", "interrupt"}
EVERY_CALL = frozenset({"lookup", "getattr", "readlink", "open", "read", "flush", "opendir", "readdir", "access"})
ROOT_NODE, DIRECT_IO, MNT_FORCE, MNT_DETACH = 1, 1, 1, 2
BUFFER = 1 << 18

needs_fuse = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/dev/fuse"),
    reason="mounts a FUSE file system, which needs root and /dev/fuse",
)


class FuseServer:
    """`folder` as seen at `point`. No cache: each call comes here."""

    def __init__(self, folder: Path, point: Path) -> None:
        self.folder, self.point = folder, point
        point.mkdir(exist_ok=True)
        self.waiting: list[tuple[str, bytes]] = []  # calls that hang
        self._hanging: frozenset[str] = frozenset()
        self._paths = {ROOT_NODE: ""}
        self._lock = threading.Lock()
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other"
        _check(_libc().mount(b"test", os.fsencode(point), b"fuse", 6, options.encode()))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def hang(self, *calls: str) -> None:
        """Answer these calls no longer."""
        with self._lock:
            self._hanging = frozenset(calls)

    def go_on(self) -> None:
        """Answer again, also what has waited."""
        with self._lock:
            self._hanging, waiting, self.waiting = frozenset(), self.waiting, []
        for call, request in waiting:
            self._answer(call, request)

    def close(self) -> None:
        for how in MNT_FORCE, MNT_DETACH:  # the first ends the calls that wait, also of a daemon that still runs
            with suppress(OSError):
                _check(_libc().umount2(os.fsencode(self.point), how))
        self._thread.join()
        with suppress(OSError):
            os.close(self._device)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, BUFFER)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return  # unmounted
            call = OPCODES.get(struct.unpack_from("<I", request, 4)[0], "other")
            with self._lock:
                hangs = call in self._hanging
                if hangs:
                    self.waiting.append((call, request))
            if not hangs:
                self._answer(call, request)

    def _answer(self, call: str, request: bytes) -> None:
        _, _, unique, node = struct.unpack_from("<IIQQ", request)
        if call in UNANSWERED:
            return
        try:
            body, number = self._body(call, node, request[40:]), 0
        except OSError as error:
            body, number = b"", error.errno or errno.EIO
        with suppress(OSError):  # whoever asked is gone
            os.write(self._device, struct.pack("<IiQ", 16 + len(body), -number, unique) + body)

    def _body(self, call: str, node: int, data: bytes) -> bytes:
        match call:
            case "init":
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 1 << 16, 1, 16, 0, 0)
            case "lookup":
                path = f"{self._paths[node]}/{os.fsdecode(data.rstrip(bytes(1)))}"
                status = os.lstat(f"{self.folder}{path}")
                self._paths[status.st_ino] = path
                return struct.pack("<QQQQII", status.st_ino, 0, 0, 0, 0, 0) + _attributes(status)
            case "getattr":
                flags, _, handle = struct.unpack_from("<IIQ", data)
                return struct.pack("<QII", 0, 0, 0) + _attributes(
                    os.fstat(handle) if flags & 1 else os.lstat(self._real(node))
                )
            case "readlink":
                return os.fsencode(os.readlink(self._real(node)))
            case "open":
                return struct.pack("<QII", os.open(self._real(node), os.O_RDONLY), DIRECT_IO, 0)
            case "read":
                handle, offset, size = struct.unpack_from("<QQI", data)
                return os.pread(handle, size, offset)
            case "release":
                os.close(struct.unpack_from("<Q", data)[0])
                return b""
            case "opendir":
                return struct.pack("<QII", 0, 0, 0)
            case "readdir":
                _, offset, size = struct.unpack_from("<QQI", data)
                return self._entries(node, offset, size)
            case "statfs":
                return struct.pack("<QQQQQIIII24x", 1, 1, 1, 1, 1, 4096, 255, 4096, 0)
            case "access" | "flush" | "releasedir" | "destroy":
                return b""
        raise OSError(errno.ENOSYS, call)

    def _real(self, node: int) -> str:
        return f"{self.folder}{self._paths[node]}"

    def _entries(self, node: int, offset: int, size: int) -> bytes:
        listing = b""
        for at, name in enumerate(sorted(os.listdir(self._real(node)))[offset:], offset + 1):
            raw = os.fsencode(name)  # type 0: the folder does not tell (DT_UNKNOWN)
            entry = struct.pack("<QQII", os.lstat(f"{self._real(node)}/{name}").st_ino, at, len(raw), 0) + raw
            entry += bytes(-len(entry) % 8)
            if len(listing) + len(entry) > size:
                break
            listing += entry
        return listing


def _attributes(status: os.stat_result) -> bytes:
    seconds = [int(time) for time in (status.st_atime, status.st_mtime, status.st_ctime)]
    nanoseconds = [time % 1_000_000_000 for time in (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)]
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return struct.pack(
        "<QQQQQQIIIIIIIIII", status.st_ino, size, status.st_blocks, *seconds, *nanoseconds, status.st_mode,
        status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0,
    )  # fmt: skip


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
