"""How far a scan has come: a bar on a terminal's stderr, nothing elsewhere; and what goes to stderr beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from exporter.core.printable import printable

if TYPE_CHECKING:
    from exporter.scan.plan import Unread


class Progress:
    """Counts what is read. How much there will be is known only where nothing is compressed."""

    def __init__(self, paths: Sequence[str], wanted: bool | None) -> None:
        self._bar: Any = None
        self._paths = paths
        self._files = 0
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

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TextColumn("{task.fields[files]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def __enter__(self) -> Progress:
        if self._bar:
            files, size = _extent(self._paths)
            self._total_files = files
            self._task = self._bar.add_task("scanning", total=size or None, files=f"0 of {files} files")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, path: str, size: int) -> None:  # noqa: ARG002 (one bar for all)
        """So many bytes more of a log were read; 0: it is done."""
        self._files += size == 0
        if self._bar:
            self._bar.update(self._task, advance=size, files=f"{self._files} of {self._total_files} files")

    def tell(self, unread: Unread) -> None:
        """Name a file that could not be read, above the bar."""
        line = printable(f"{unread.path}: not read: {unread.why}")
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr)


def _extent(paths: Sequence[str]) -> tuple[int, int]:
    """How many files there are, and how many bytes are in them; 0 where that is not known."""
    from exporter.scan.plan import expand
    from exporter.scan.unpack import is_archive

    files, size, known = 0, 0, True
    for path in expand(paths):
        if isinstance(path, str):
            files += 1
            known = known and os.path.isfile(path) and not is_archive(path)
            size += os.path.getsize(path) if known else 0
    return files, size if known else 0
