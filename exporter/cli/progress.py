"""The progress bar of a scan, on a terminal's stderr only, and the messages printed above it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from exporter.core.text.counted import counted
from exporter.core.text.printable import printable
from exporter.core.text.redact import hide_secrets
from exporter.scan.decompress import is_archive

if TYPE_CHECKING:
    from exporter.scan.plan import Unread
    from exporter.scan.stitch import Place


PACKED = 8  # bytes of a log that one of its archive stands for until its end, when all of it counts: 5 to 15 are usual

WIDE = 80  # columns that all of the bar takes; with fewer, rich would cut words and break lines


class Progress:
    """Counts the bytes read, as on disk. The total is unknown if something comes from a pipe.

    read: how far an earlier scan of the same paths has read.
    """

    def __init__(self, paths: Sequence[str], wanted: bool | None, read: Place | None = None) -> None:
        self._bar: Any = None
        self._paths = paths
        self._read = read
        self._files = 0
        self._archive, self._left = "", 0  # which is being read, and what is left of it on disk
        if wanted if wanted is not None else sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            console = Console(stderr=True)
            of_bytes = (DownloadColumn(), TransferSpeedColumn()) if console.width >= WIDE else ()
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                *of_bytes,
                TextColumn("{task.fields[files]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )

    def __enter__(self) -> Progress:
        if self._bar:
            extent = _extent(self._paths, self._read)
            self._total_files, self._files = extent.files, extent.files_done
            self._task = self._bar.add_task(
                "scanning", total=extent.size or None, completed=extent.done, files=self._files_text()
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, path: str, size: int) -> None:
        """Record that more decompressed bytes of a log were read; 0: the log is done."""
        self._files += size == 0
        if self._bar:
            advance = self._packed_bytes(path, size) if is_archive(path) else size
            self._bar.update(self._task, advance=advance, files=self._files_text())

    def _files_text(self) -> str:
        return f"{self._files:,} of {counted(self._total_files, 'file')}"

    def _packed_bytes(self, path: str, size: int) -> int:
        """Estimate how many compressed bytes correspond to a number of decompressed bytes."""
        if path != self._archive:
            self._archive, self._left = path, _size(path) or 0
        advance = min(size // PACKED, self._left) if size else self._left
        self._left -= advance
        return advance

    def report_unread(self, unread: Unread) -> None:
        """Print a file that could not be read, above the bar."""
        line = printable(hide_secrets(f"{unread.path}: not read: {unread.why}"))
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr)


class _Extent(NamedTuple):
    """Files and bytes on disk: the total (0 bytes if unknown), and those read so far."""

    files: int
    size: int
    files_done: int
    done: int


def _extent(paths: Sequence[str], read: Place | None) -> _Extent:
    from exporter.scan.plan import expand

    files, total, known = 0, 0, True
    done = (0, 0)
    for path in expand(paths):
        if isinstance(path, str):
            if read and path == read.path and read.offset is not None:
                done = files, total + read.offset
            files += 1
            size = _size(path)
            known = known and size is not None
            total += size or 0
            if read and path == read.path and read.offset is None:
                done = files, total
    return _Extent(files, total if known else 0, *done)


def _size(path: str) -> int | None:
    """The size of a file; None for a pipe or a missing file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
