"""Where the bytes of a rotated log may be: the siblings of a name, as logrotate, the kubelet and loggers call them.

Knows names, folders and contents; what a log is, and what becomes of it, is `follow`'s.
"""

from __future__ import annotations

import math
import os
import re
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice, takewhile

from exporter.sources.files.access import Access
from exporter.sources.files.clock import TICK_NS
from exporter.sources.files.gzip_reader import BLOCK_BYTES, GzipReader
from exporter.sources.files.identity import HEAD_BYTES, NO_ANSWER, TAIL_BYTES, Fingerprint, Version, version_of
from exporter.sources.files.opening import OpenFile, Reader, closed_on_error

LISTINGS = 3  # of a folder that changes all the time
COMPARED_BYTES = 64 << 20  # 0.4 s to unpack; of what is longer, only beginning and length are compared
MAX_FOLDERS = 32  # a stat each for a log that went while nobody looked
MAX_SHORT_COPIES = 1024
MAX_SIBLINGS = 64  # the newest; logrotate keeps fewer, and a thousand ranks named job-N are not a rotation
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


Siblings = Sequence[tuple[str, os.stat_result]]  # paths and what a stat told of them, the newest first


class Folder:
    """What stood in a folder at one moment. A missing or unreadable folder is empty.

    Raises OSError where the disk or its server gives no answer. Without `listings`, it is taken to be empty.
    """

    def __init__(self, path: str, listings: int = LISTINGS) -> None:
        self.path = path
        self.begun = -math.inf  # when it was listed, by the monotonic clock
        self._stamp, self._settled = -1, False
        self._inodes: list[tuple[int, str]] = []
        for _ in range(listings):  # a name that is changed meanwhile may be in neither place
            self.begun, self._stamp = time.monotonic(), _stamp(path)
            self._settled = self._stamp < time.time_ns() - TICK_NS
            try:
                with os.scandir(path) as entries:
                    self._inodes = sorted((entry.inode(), entry.name) for entry in entries)
            except OSError as error:
                if error.errno in NO_ANSWER:
                    raise
                break  # the log's own stat tells of it
            if _stamp(path) == self._stamp:
                break
        self._names = sorted((name, inode) for inode, name in self._inodes)

    def is_current(self) -> bool:
        """Whether this is, for sure, what stands there now."""
        return self._settled and _stamp(self.path) == self._stamp

    def with_inode(self, inode: int) -> list[str]:
        """Paths that have an inode: several, where it has hard links."""
        first = bisect_left(self._inodes, (inode, ""))
        same = takewhile(lambda item: item[0] == inode, islice(self._inodes, first, None))
        return [self._path(name) for _, name in same]

    def siblings(self, name: str) -> dict[str, int]:
        """Paths that rotation may have given to what was called `name`, compressed ones too, and their inodes."""
        stem, extension = os.path.splitext(name)
        before, behind = f"{re.escape(stem)}{_DATED}{re.escape(extension)}", f"{re.escape(name)}{_DATED}"
        dated = re.compile(f"(?:{before}|{behind}){_PACKED}")
        found = {
            n: i
            for end in ".-"
            for n, i in self._beginning_with(name + end)
            if not n.endswith(_NO_LOG) or _BACKUP.fullmatch(n.removeprefix(name))
        }
        found |= {n: i for end in ".-_" for n, i in self._beginning_with(stem + end) if dated.fullmatch(n)}
        if name == _CURRENT:
            found |= {n: i for n, i in self._beginning_with("@") if _TAI64N.fullmatch(n)}
        return {self._path(name): inode for name, inode in found.items()}

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _beginning_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        return takewhile(
            lambda item: item[0].startswith(prefix), islice(self._names, bisect_left(self._names, (prefix, 0)), None)
        )


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


def folders_in(path: str) -> list[str]:
    """The folders in a folder, some of them where there are many. Raises OSError."""
    with os.scandir(path) as entries:
        folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        return list(islice(folders, MAX_FOLDERS))


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


def newest_first(paths: Iterable[str], access: Access) -> list[tuple[str, os.stat_result]]:
    """The files among some siblings, as many as rotation may have left."""
    looked = ((path, access.tells(path, partial(os.stat, path), None)) for path in paths)
    found = [(path, status) for path, status in looked if status is not None]  # else renamed on
    return sorted(found, key=lambda item: item[1].st_mtime_ns, reverse=True)[:MAX_SIBLINGS]


def copies_of(mark: Fingerprint, siblings: Siblings, access: Access) -> Iterator[tuple[str, OpenFile]]:
    """The siblings that begin with all that `mark` tells, open: what copytruncate made, or a rotated file."""
    for path, status in siblings:
        if status.st_size < mark.length or path.endswith(COMPRESSED):
            continue
        file = access.try_open(path)
        if file is None:
            continue
        with closed_on_error(file):
            same = access.holds(file, mark)
        if same:
            yield path, file
        else:
            file.close()


def packed(mark: Fingerprint, siblings: Siblings, modified: int, access: Access) -> list[GzipReader]:
    """The gzip files among siblings that begin like `mark` and may hold what was written at `modified` or later: gzip
    keeps the time.
    """
    since = modified - 10**9  # whole seconds, where utimensat(2) is not used
    found: list[GzipReader] = []
    with ExitStack() as opened:
        for path, status in siblings:
            if not path.endswith(".gz") or status.st_mtime_ns < since:
                continue
            file = access.try_open(path)
            if file is None:
                continue
            unpacked = GzipReader(file)
            opened.enter_context(closed_on_error(unpacked))
            if access.tells(path, partial(mark.begins_like, unpacked.read), False):
                found.append(unpacked)
            else:
                unpacked.close()
    return found


def same_bytes(copy: Reader, original: Reader, start: int, stop: int) -> bool:
    """Whether two files hold the same bytes from `start` up to `stop`."""
    for at in range(start, stop, BLOCK_BYTES):
        block = copy.read(min(BLOCK_BYTES, stop - at), at)
        if len(block) < min(BLOCK_BYTES, stop - at) or block != original.read(len(block), at):
            return False
    return True


def same_beginning(copy: OpenFile, original: OpenFile, length: int) -> bool:
    """Whether two files begin with the same `length` bytes, as far as both digests of the copy's tell: a first look."""
    return original.begins_with(Fingerprint.taken(copy.read, length))


def holds_all_of(copy: OpenFile, original: OpenFile, length: int) -> bool:
    """Whether two files begin with the same `length` bytes; of more than are compared at once, as the first look tells."""
    alike = same_beginning(copy, original, length)
    return alike and (length > COMPARED_BYTES or same_bytes(copy, original, 0, length))


def is_packed_copy(packed: GzipReader, original: OpenFile) -> bool:
    """Whether a compressed file holds a part of another file from its first byte on, or all of it: perhaps it is being
    written.
    """
    if not same_head(packed, original):
        return False
    size = original.status().st_size
    checksum, length = packed.trailer()
    if size > COMPARED_BYTES:
        return length == size % 2**32
    if length == size and checksum == zlib.crc32(original.read(size, 0)):
        return True
    return _is_begun_in(packed, original, size)


def _is_begun_in(packed: GzipReader, original: OpenFile, size: int) -> bool:
    """Whether all that has been compressed so far is what the first `size` bytes of another file begin with."""
    at = 0
    while block := packed.read(BLOCK_BYTES, at):
        if at + len(block) > size or block != original.read(len(block), at):
            return False
        at += len(block)
    return True


def may_hold(packed: GzipReader, mark: Fingerprint) -> bool:
    """Whether a compressed file begins with what `mark` tells; of one that is too long to unpack, only its head tells."""
    return same_head(packed, mark) and (mark.length > COMPARED_BYTES or mark.found_in(packed.read))


def is_packed_whole(packed: GzipReader, mark: Fingerprint) -> bool:
    """Whether a compressed file holds what `mark` tells, and nothing else."""
    return packed.trailer()[1] == mark.length % 2**32 and may_hold(packed, mark)


def same_head(one: Reader, other: Reader | Fingerprint) -> bool:
    """Whether a file begins as another one does, or one of which a fingerprint is left; an empty one tells nothing."""
    if isinstance(other, Fingerprint):
        return other.length > 0 and other.begins_like(one.read)
    head = other.read(HEAD_BYTES, 0)
    return bool(head) and one.read(len(head), 0) == head


class ShortCopies:
    """Siblings of logs whose bytes are gone, that were perhaps copied before all was written that had been read.

    Between the end of a copy and the truncation a writer may add to a log, and we may read it. Logs share banners, so the
    end of the copy is compared with the last bytes that were read, as far as they are kept. Where that is not far enough,
    nobody can tell: the copy is read, since a crash that is counted twice is better than one that is missed.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._read: dict[Version, int] = {}  # how much of each file; 0 where nobody can tell

    def look(self, mark: Fingerprint, kept: bytes, siblings: Siblings) -> None:
        """Look at files that nobody has, after a log was lost of which `mark` tells, with `kept` as its last bytes."""
        start = mark.length - len(kept)
        for path, status in siblings:
            size = status.st_size
            if not HEAD_BYTES <= size < mark.length or path.endswith(COMPRESSED):
                continue
            file = self._access.try_open(path)
            if file is None:
                continue
            with closed_on_error(file):
                alike = self._access.tells(path, partial(same_head, file, mark), False)
                known = size - start >= TAIL_BYTES
                end = self._access.tells(path, partial(file.read, size - start, start), b"") if known else b""
            file.close()
            if alike and (not known or end == kept[: size - start]):
                self._read[version_of(status)] = size if known else 0
                if len(self._read) > MAX_SHORT_COPIES:
                    del self._read[next(iter(self._read))]

    def read_of(self, file: OpenFile) -> int:
        """How much of a new file was read before. Where nobody can tell, that is counted."""
        read = self._read.pop(version_of(file.status()), None)
        if read == 0:
            self._access.refusals.count(file.path, "perhaps_read_twice")
        return read or 0
