"""Hints that files have changed, from inotify by way of watchdog. A hint only wakes the loop and says where to look
first: what the polls see is the truth, and a lost event costs nothing but time.

Network file systems get no watch, since inotify never tells of remote writers (watchdog#504). Neither do trees with so
many folders that their watches would be taken from the kubelet (grafana/loki#4740).
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from watchdog.events import (
    DirCreatedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from exporter.core.facts.mounts import mount_holding, parse_mountinfo
from exporter.process.recursion_limit import allow_deepest_folders
from exporter.sources.calls import INOTIFY, ask
from exporter.sources.files.contents import Inode, inode_of
from exporter.sources.files.filesystem import folders_in, read_mountinfo, realpath, stat_or_none

MAX_ROOTS = 32  # each watched root is a thread
MAX_FOLDERS = 1024  # below one root; the kernel's limit is 8192 a user on small nodes
MAX_PATHS = 4096  # hints kept until the next poll; beyond, the polls find what is left
STORM_EVENTS = 500  # a second: 2% of a core. Interleaved writers send one for every write
STORM_SECONDS = 10.0
REST_SECONDS = 300.0
CLOSE_SECONDS = 1.0

# It complains of lost hints, and of its own end, on stderr otherwise. The polls see what counts.
logging.getLogger("watchdog").addHandler(logging.NullHandler())

# Here the kernel sees only what this node writes: network and cluster file systems, and those that run in user space.
_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent, FileModifiedEvent, FileMovedEvent, FileDeletedEvent, DirCreatedEvent, DirMovedEvent,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hints:
    """Where something has happened since the last poll: to files, and in new folders."""

    paths: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


class Watch(FileSystemEventHandler):
    """The watches of one source. Events come in watchdog's thread, everything else is called from the loop."""

    def __init__(self, wake: Callable[[], None], mountinfo: Callable[[], str] = read_mountinfo) -> None:
        self.mode = "poll"  # or inotify: all roots are watched; mixed: some are
        self._wake = wake
        self._mountinfo = mountinfo
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._folders: set[str] = set()
        self._events = 0
        self._counted_from: float | None = None
        self._rest_until: float | None = None
        self._observer: BaseObserver | None = None
        self._watched: dict[str, tuple[Inode, ObservedWatch]] = {}

    def on_any_event(self, event: FileSystemEvent) -> None:
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if event.is_directory:
            del paths[:-1]  # from where a folder was moved, nothing is to be found
        with self._lock:
            first = not self._paths and not self._folders
            self._events += 1
            if len(self._paths) + len(self._folders) < MAX_PATHS:
                (self._folders if event.is_directory else self._paths).update(paths)
        if first:
            self._wake()

    def take(self, now: float) -> Hints:
        """What was hinted at since the last call."""
        with self._lock:
            hints = Hints(frozenset(self._paths), frozenset(self._folders))
            self._paths.clear()
            self._folders.clear()
            events = self._events
        if self._counted_from is None or now - self._counted_from >= STORM_SECONDS:
            if self._counted_from is not None and events > STORM_EVENTS * (now - self._counted_from):
                self.close()
                self._rest_until = now + REST_SECONDS
            self._counted_from, self._events = now, 0
        return hints

    def follow(self, roots: Mapping[str, bool], now: float) -> None:
        """Watch the roots that can be watched (and what is below those marked so), also those that were made anew."""
        if self._rest_until is not None and now < self._rest_until:
            return
        self._rest_until = None
        mounts = parse_mountinfo(self._mountinfo())
        for root, deep in list(roots.items())[:MAX_ROOTS]:
            status = stat_or_none(root)
            inode = inode_of(status) if status is not None else None
            watched = self._watched.get(root)
            if watched is not None and watched[0] != inode:
                self._unwatch(root)  # deleted and made again: its emitter is silent for ever
            if inode is None or root in self._watched:
                continue
            real = realpath(root)
            mount = mount_holding(mounts, real)
            below = [inner for inner in mounts if deep and inner.point.startswith(f"{real.rstrip('/')}/")]
            is_local = mount is not None and all(one.is_local for one in (mount, *below))
            if is_local and (not deep or _is_small(root)):
                self._begin(root, inode, now, deep=deep)
        self.mode = "poll" if not self._watched else "inotify" if len(self._watched) == len(roots) else "mixed"

    def close(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            ask("", self._observer.join, CLOSE_SECONDS)  # it may be in a folder that does not answer
            self._observer = None
        self._watched.clear()
        self.mode = "poll"

    def _begin(self, root: str, inode: Inode, now: float, *, deep: bool) -> None:
        if self._rest_until is not None:
            return
        try:
            if self._observer is None:
                allow_deepest_folders()  # watchdog walks what is new, in the one thread of all watches
                self._observer = Observer()
                self._observer.start()
            schedule = partial(self._observer.schedule, recursive=deep, event_filter=_EVENTS)
            watch = ask(root, schedule, self, root, lane=INOTIFY)
        except (OSError, RuntimeError):
            # No inotify instance or watch is left (EMFILE, ENOSPC), or no thread; trying again at once would cost more.
            self._rest_until = now + REST_SECONDS
            return
        self._watched[root] = (inode, watch)

    def _unwatch(self, root: str) -> None:
        _, watch = self._watched.pop(root)
        if self._observer is not None:
            ask(root, self._observer.unschedule, watch, lane=INOTIFY)


def _is_small(root: str) -> bool:
    """Whether a tree has few enough folders to watch them all. Looks at no more of them than that."""
    waiting, folders = [root], 0
    while waiting and folders <= MAX_FOLDERS:
        with contextlib.suppress(OSError):
            waiting += folders_in(waiting.pop())
        folders += 1
    return folders + len(waiting) <= MAX_FOLDERS
