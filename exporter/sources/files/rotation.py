"""The names that rotation gives, as logrotate, the kubelet and loggers choose them. Looks at no file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

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


def siblings(name: str, beginning_with: Callable[[str], Iterable[tuple[str, int]]]) -> dict[str, int]:
    """Names that rotation may have made of one, compressed ones too, and their inodes; of those in a folder, sorted."""
    stem, extension = os.path.splitext(name)
    before, after = f"{re.escape(stem)}{_DATED}{re.escape(extension)}", f"{re.escape(name)}{_DATED}"
    names = {
        n: i
        for end in ".-"
        for n, i in beginning_with(name + end)
        if not n.endswith(_NO_LOG) or _BACKUP.fullmatch(n.removeprefix(name))
    }
    maybe_dated = {n: i for end in ".-_" for n, i in beginning_with(stem + end) if n != name}
    if maybe_dated:  # most logs have none, and compiling takes longer than all else
        dated = re.compile(f"(?:{before}|{after}){_PACKED}")
        names |= {n: i for n, i in maybe_dated.items() if dated.fullmatch(n)}
    if name == _CURRENT:
        names |= {n: i for n, i in beginning_with("@") if _TAI64N.fullmatch(n)}
    return names


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
