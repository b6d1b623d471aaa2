"""Makes the calls that a file system may never answer: its server is gone, its FUSE program has stopped, its disk is dead.

While a call lasts, the main loop has the turn. A call of a file system that is not on a local disk is made in a thread of its
own, with a deadline: it raises `Stalled`, and so does each later one there until the first has returned. Knows nothing of logs.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from exporter.core.facts.mounts import parse_mountinfo

DEADLINE_SECONDS = 1.0  # of a call; what is late is not lost, but asked for again
END_SECONDS = 1.0  # until a thread that waits for nothing has ended
SLOW_SECONDS = 0.1  # a call that takes longer delays the logs of others: above, all calls of a poll share one deadline
MAX_LANES = 64  # threads, one for each file system; of a user's thousand (fuse.conf: mount_max) the rest share the last
MAX_LINKS = 40  # as the kernel's own limit (MAXSYMLINKS)
INOTIFY = "inotify"  # the lane of calls that walk a tree by themselves
NO_LANE = "."  # no lane: calls that must not go on once they are given up
MOUNTINFO = "/proc/self/mountinfo"

T = TypeVar("T")
_here = threading.local()


class Stalled(OSError):
    """A file system does not answer. This proves nothing about a file, however long it lasts."""

    def __init__(self, mount: str) -> None:
        super().__init__(errno.ETIMEDOUT, "the file system does not answer", mount)


class Abandoned(BaseException):
    """Ends a reader thread that was left alone in a call."""


class Stall(NamedTuple):
    """A call that has not returned: where, and since when (monotonic seconds)."""

    mount: str
    since: float


def ask(path: str, function: Callable[..., T], *args: Any, lane: str = "") -> T:
    """Call a function that looks at `path`: at once, or as the `Calls` of this thread make it. Raises what it raises."""
    calls: Calls | None = getattr(_here, "calls", None)
    return function(*args) if calls is None or calls.is_calling else calls.make(path, lane, function, args)


def let_go(path: str, close: Callable[[], object]) -> None:
    """Close what is open, without waiting where the file system may not answer."""
    calls: Calls | None = getattr(_here, "calls", None)
    if calls is None or calls.is_calling or calls.abandoned:
        close()
    else:
        calls.let_go(path, close)


class Calls:
    """The calls of one reader thread. turn: held by whoever runs, the main loop or the thread; the main loop begins."""

    def __init__(self, lanes: Lanes) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        self.abandoned = False
        self._lanes = lanes
        self._user = ""  # the source that is read
        self._current: Stall | None = None

    @contextmanager
    def attached(self) -> Iterator[None]:
        """What this thread asks is asked here."""
        _here.calls = self
        try:
            yield
        finally:
            _here.calls = None

    @property
    def is_calling(self) -> bool:
        """Whether it is a call that makes calls."""
        return self._current is not None

    def begin(self, user: str) -> None:
        """A poll of a source begins."""
        self._user = user
        self._lanes.begin()

    def make(self, path: str, lane: str, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Make a call, and let the main loop run meanwhile."""
        with self._without_turn(path):
            own = self._lanes.of(path, self._user, lane)
            return function(*args) if own is None else own.call(function, args)

    def let_go(self, path: str, close: Callable[[], object]) -> None:
        with self._without_turn(path):
            own = self._lanes.of(path, self._user)
            if own is None:
                close()
            else:
                own.let_go(close)

    def waiting(self) -> float:
        """For how long the thread has been in its present call."""
        current = self._current
        return time.monotonic() - current.since if current else 0.0

    def stalls(self, user: str) -> list[Stall]:
        current = self._current
        return self._lanes.stalls(user) or ([current] if current else [])

    def abandon(self) -> None:
        """Leave the thread alone: its call may never return. It ends when it does."""
        self.abandoned = True
        self.turn.release()

    @contextmanager
    def _without_turn(self, path: str) -> Iterator[None]:
        if self.abandoned:
            raise Abandoned
        self._current = Stall(path, time.monotonic())
        self.turn.release()
        try:
            yield
        finally:
            self.turn.acquire()
            self._current = None
            if self.abandoned:
                raise Abandoned


class Lanes:
    """A lane for each file system that is not on a local disk and that was looked at; they outlive a reload."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._mounts = _Mounts()

    def begin(self) -> None:
        """A poll begins."""
        if self._mounts.refresh():
            for mount in [mount for mount in self._lanes if not self._is_needed(mount)]:
                self._lanes.pop(mount).end()
        for lane in self._lanes.values():
            lane.spent = 0.0

    def of(self, path: str, user: str, name: str = "") -> _Lane | None:
        """The lane of a path, or that of a name."""
        mount = None if name == NO_LANE else name or self._mounts.remote(path)
        if mount is None:
            return None
        if mount not in self._lanes and len(self._lanes) >= MAX_LANES:
            mount = next(reversed(self._lanes))
        lane = self._lanes[mount] = self._lanes.get(mount) or _Lane(mount)
        lane.users[user] = None
        return lane

    def call(self, name: str, seconds: float, function: Callable[..., T], *args: Any) -> T:
        """Call a function of the main loop's own in the lane of that name. Raises Stalled after so many seconds."""
        lane = self._lanes[name] = self._lanes.get(name) or _Lane(name, is_of_mount=False)
        lane.spent = 0.0
        return lane.call(function, args, seconds)

    def stalls(self, user: str) -> list[Stall]:
        return [stall for lane in list(self._lanes.values()) if user in lane.users and (stall := lane.stall)]

    def close(self) -> None:
        """End all threads but those that wait for a file system."""
        for lane in self._lanes.values():
            lane.end()
        self._lanes.clear()
        self._mounts.close()

    def _is_needed(self, mount: str) -> bool:
        lane = self._lanes[mount]
        return mount == INOTIFY or mount in self._mounts.points or not lane.is_of_mount or lane.stall is not None


class _Call:
    """A call, and its result."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
        self.function, self.args = function, args
        self.done = threading.Event()
        self.is_late = False  # nobody waits for it any longer
        self.result: Any = None
        self.error: BaseException | None = None


class _Lane:
    """A thread that makes the calls of one file system, one at a time."""

    def __init__(self, mount: str, *, is_of_mount: bool = True) -> None:
        self.is_of_mount = is_of_mount
        self.users: dict[str, None] = {}  # sources
        self.spent = 0.0  # seconds in slow calls since a poll began
        self._mount = mount
        self._since: float | None = None  # when the call that has not returned was made
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"calls of {mount}", daemon=True)
        self._thread.start()

    @property
    def stall(self) -> Stall | None:
        since = self._since
        return None if since is None else Stall(self._mount, since)

    def call(self, function: Callable[..., T], args: tuple[Any, ...], seconds: float = DEADLINE_SECONDS) -> T:
        if self._since is not None or self.spent >= DEADLINE_SECONDS:
            raise Stalled(self._mount)
        call, began = _Call(function, args), time.monotonic()
        self._since = began
        self._queue.put(call)
        call.done.wait(seconds)
        with self._lock:
            call.is_late = not call.done.is_set()
        if call.is_late:
            raise Stalled(self._mount)
        self._since = None
        took = time.monotonic() - began
        self.spent += took if took > SLOW_SECONDS else 0.0
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def let_go(self, close: Callable[[], object]) -> None:
        """Close what is open as soon as the file system answers."""
        self._queue.put(_Call(close))

    def end(self) -> None:
        self._queue.put(None)
        if self._since is None:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call.result = call.function(*call.args)
            except BaseException as error:
                call.error = error
            with self._lock:
                call.done.set()
                if call.is_late:
                    self._since = None
            if call.is_late and hasattr(call.result, "close"):
                call.result.close()  # opened too late for whoever asked


class _Mounts:
    """The mounts that this process sees, read again when the kernel tells of a change."""

    def __init__(self) -> None:
        self.points: tuple[str, ...] = ()  # of file systems that are not on a local disk, the longest first
        self._folders: dict[str, tuple[str | None, str]] = {}
        self._changed = select.poll()
        self._file = -1
        with suppress(OSError):
            self._file = os.open(MOUNTINFO, os.O_RDONLY | os.O_CLOEXEC)
            self._changed.register(self._file, select.POLLPRI)
            self._read()

    def refresh(self) -> bool:
        """Forget what links led to, and read the mounts if they have changed (proc(5)). True if they have."""
        self._folders.clear()
        changed = self._file >= 0 and bool(self._changed.poll(0))
        if changed:
            self._read()
        return changed

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remote(self, path: str) -> str | None:
        """The mount of a path, if it is not on a local disk. Looks at links on local disks only."""
        if not self.points:
            return None
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._resolved(folder)
        point, real = self._folders[folder]
        return point or self._resolved(f"{real}/{name}", begin=real)[0]

    def _point(self, path: str) -> str | None:
        return next((point for point in self.points if f"{path}/".startswith(f"{point.rstrip('/')}/")), None)

    def _resolved(self, path: str, begin: str = "") -> tuple[str | None, str]:
        """The mount that is not local and that a path leads to, else the path without links, as far as it exists."""
        real, rest, links = begin, path.removeprefix(begin).split("/")[::-1], 0
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                real = real.rpartition("/")[0]
                continue
            if point := self._point(f"{real}/{name}"):
                return point, real
            try:
                target = os.readlink(f"{real}/{name}")
            except OSError:
                real = f"{real}/{name}"
                continue
            links += 1
            if links > MAX_LINKS:
                break
            real = "" if target.startswith("/") else real
            rest += target.split("/")[::-1]
        return None, real

    def _read(self) -> None:
        os.lseek(self._file, 0, os.SEEK_SET)
        text = b""
        while block := os.read(self._file, 1 << 16):
            text += block
        mounts = {mount.point: mount for mount in parse_mountinfo(text.decode("utf-8", "surrogateescape"))}
        remote = (point for point, mount in mounts.items() if not mount.is_local)
        self.points = tuple(sorted(remote, key=len, reverse=True))


def may_hang(path: str) -> bool:
    """Whether a path is not on a local disk now. Looks at local disks only."""
    mounts = _Mounts()
    try:
        return mounts.remote(path) is not None
    finally:
        mounts.close()
