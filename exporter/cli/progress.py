"""The progress bar of a scan, on a terminal's stderr only, and the messages printed above it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from exporter.core.text.counted import counted
from exporter.core.text.printable import printable
from exporter.core.text.redact import redact
from exporter.scan.decompress import is_archive

if TYPE_CHECKING:
    from exporter.scan.plan import Unread


PACKED = 8  # bytes of a log that one of its archive stands for until its end, when all of it counts: 5 to 15 are usual

WIDE = 80  # columns that all of the bar takes; with fewer, rich would cut words and break lines


class Progress:
    """Counts the bytes read, as on disk. The total is unknown if something comes from a pipe."""

    def __init__(self, paths: Sequence[str], wanted: bool | None) -> None:
        self._bar: Any = None
        self._paths = paths
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
            self._total_files, size = _extent(self._paths)
            self._task = self._bar.add_task("scanning", total=size or None, files=self._files_text())
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
        line = printable(redact(f"{unread.path}: not read: {unread.why}"))
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr)


def _extent(paths: Sequence[str]) -> tuple[int, int]:
    """Files, and bytes on disk: 0 if unknown."""
    from exporter.scan.plan import expand

    sizes = [_size(path) for path in expand(paths) if isinstance(path, str)]
    return len(sizes), 0 if None in sizes else sum(size or 0 for size in sizes)


def _size(path: str) -> int | None:
    """The size of a file; None for a pipe or a missing file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
