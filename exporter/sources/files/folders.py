"""What stands in a folder at one moment, and the names that rotation gives, as logrotate, the kubelet and loggers choose them.

Raises OSError where a disk or a server gives no answer: it may be asked again. Opens no file.
"""

import math
import os
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from exporter.sources.files import filesystem
from exporter.sources.files.filesystem import NO_ANSWER, TICK_NS, monotonic, now_ns

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".Z", ".zip")
_NO_LOG = (".swp", ".tmp", ".lock", ".pid", ".state", "~")  # what editors, rsync and daemons put beside a log
_DATE = r"__?\d{4}-?\d\d-?\d\d"  # pm2-logrotate and many a script; `job_1` is a rank's
_DATED = rf"(?:[.-]\d|{_DATE})[\d_.:T-]*"  # logrotate's `extension` and log4j put it before a name's extension
_PACKED = rf"(?:{'|'.join(map(re.escape, COMPRESSED))})?"
_BACKUP = re.compile(r"\.~\d+~")  # what `mv --backup=numbered` makes of what it writes over
_ROTATED = re.compile(rf"(?:{_DATED}|[.-]old(?:{_DATED})?|{_BACKUP.pattern})(?:\.gz)?")  # RocksDB: LOG.old.1690000000
_TAI64N = re.compile(r"@[0-9a-f]{24}\.[a-z]")  # what multilog, svlogd and s6-log make of `current`
_CURRENT = "current"
_DATED_NAME = re.compile(rf"(?P<stem>.+?){_DATED}(?P<extension>\.[A-Za-z]+)")
_DATED_END = re.compile(rf"(?P<name>.+?){_DATE}[\d_.:T-]*")


def _siblings(name: str, names: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Those of a folder's names, sorted and with inodes, that rotation may have made of one, compressed ones too."""
    stem, extension = os.path.splitext(name)
    before, after = f"{re.escape(stem)}{_DATED}{re.escape(extension)}", f"{re.escape(name)}{_DATED}"
    found = {
        n: i
        for end in ".-"
        for n, i in _beginning_with(name + end, names)
        if not n.endswith(_NO_LOG) or _BACKUP.fullmatch(n.removeprefix(name))
    }
    maybe_dated = {n: i for end in ".-_" for n, i in _beginning_with(stem + end, names) if n != name}
    if maybe_dated:  # most logs have none, and compiling takes longer than all else
        dated = re.compile(f"(?:{before}|{after}){_PACKED}")
        found |= {n: i for n, i in maybe_dated.items() if dated.fullmatch(n)}
    if name == _CURRENT:
        found |= {n: i for n, i in _beginning_with("@", names) if _TAI64N.fullmatch(n)}
    return found


def _beginning_with(prefix: str, names: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    after = (names[at] for at in range(bisect_left(names, (prefix, 0)), len(names)))
    return takewhile(lambda item: item[0].startswith(prefix), after)


def originals(path: str) -> Iterator[str]:
    """The paths that a log may have had before rotation called it, or a copy of it, `path`; the likeliest first."""
    folder, name = os.path.split(path)
    names = [_CURRENT] if _TAI64N.fullmatch(name) else []
    if dated := _DATED_NAME.fullmatch(name):
        names.append(dated["stem"] + dated["extension"])
    if dated := _DATED_END.fullmatch(name):
        names.append(dated["name"])
    names += [name[:index] for index in range(len(name) - 1, 0, -1) if name[index] in ".-"]
    for original in names:
        yield os.path.join(folder, original)
    for original in names:
        if is_numbered(name, original):
            yield os.path.join(os.path.dirname(folder), original)  # from which logrotate's `olddir` took it


def is_numbered(path: str, base: str) -> bool:
    """Whether a sibling's name is one that only rotation gives: `job.log.1`, but not `job.log.err`."""
    return (
        _TAI64N.fullmatch(os.path.basename(path)) is not None or _ROTATED.fullmatch(path.removeprefix(base)) is not None
    )


def names_of(paths: Collection[str]) -> set[str]:
    """What the files at some paths are called, and were before rotation numbered them."""
    before = {original for path in paths for original in originals(path) if is_numbered(path, original)}
    return {os.path.basename(path) for path in (*paths, *before)}


LISTINGS = 3  # of a folder that changes all the time
MAX_FOLDERS = 32  # in a folder: a stat each for a log that went while nobody looked


@dataclass(frozen=True, slots=True)
class Folder:
    """What stood in a folder at one moment. A missing or unreadable folder is empty."""

    path: str
    begun: float = -math.inf  # when it was listed, by the monotonic clock
    stamp: int = -1
    settled: bool = False  # a later change has another stamp
    names: Sequence[tuple[str, int]] = ()  # sorted, with inodes
    by_inode: Mapping[int, Sequence[str]] = field(default_factory=dict)  # several names, where it has hard links

    def is_current(self) -> bool:
        """Whether this is, for sure, what stands there now."""
        return self.settled and _stamp(self.path) == self.stamp

    def with_inode(self, inode: int) -> list[str]:
        return [os.path.join(self.path, name) for name in self.by_inode.get(inode, ())]

    def siblings(self, name: str) -> dict[str, int]:
        """Paths that rotation may have given to what was called `name`, compressed ones too, and their inodes."""
        return {os.path.join(self.path, name): inode for name, inode in _siblings(name, self.names).items()}


def snapshot(path: str) -> Folder:
    """What stands in a folder now."""
    folder = Folder(path)
    for _ in range(LISTINGS):  # a name that is changed meanwhile may be in neither place
        begun, stamp = monotonic(), _stamp(path)
        settled = stamp < now_ns() - TICK_NS
        try:
            names = sorted((entry.name, entry.inode()) for entry in filesystem.entries(path))
        except OSError as error:
            if error.errno in NO_ANSWER:
                raise
            return Folder(path, begun, stamp, settled)  # the log's own stat tells of it
        by_inode: dict[int, list[str]] = {}
        for name, inode in names:
            by_inode.setdefault(inode, []).append(name)
        folder = Folder(path, begun, stamp, settled, names, by_inode)
        if _stamp(path) == stamp:
            break
    return folder


def folders_in(path: str) -> list[str]:
    return list(islice(filesystem.folders_in(path), MAX_FOLDERS))


def _stamp(path: str) -> int:
    status = filesystem.stat_or_none(path)
    return status.st_mtime_ns if status is not None else -1
