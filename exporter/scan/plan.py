"""Which files a scan reads, and as what: job or kernel log, and in which carrier's form."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from exporter.core import decode
from exporter.core.model import LogFormat, SourceKind
from exporter.core.prefixes import Clock
from exporter.scan.documents import document_of
from exporter.scan.reader import STDIN, head
from exporter.scan.walk import files_below, is_below
from exporter.sources.depth import allow_the_deepest_folders

SAMPLE_BYTES = 64 * 1024
SAMPLE_LINES = 60
_KERNEL_NAMES = ("dmesg", "kern.log", "kmsg", "messages", "syslog")


@dataclass(frozen=True, slots=True)
class Task:
    """One log to scan."""

    path: str
    source: SourceKind
    format: LogFormat


@dataclass(frozen=True, slots=True)
class Wanted:
    """A log to scan of which it is not known yet what it is."""

    path: str
    source: Literal["job", "kernel", "auto"] = "auto"


@dataclass(frozen=True, slots=True)
class Unread:
    """A path that could not be read, and why. `is_document`: it could, and was not, for it is no log."""

    path: str
    why: str
    is_document: bool = False


def expand(paths: Sequence[str]) -> Iterator[str | Unread]:
    """Files, folders (all below them) and globs to file paths, each once; below a folder in order. Found as they are
    asked for: a folder may hold a million.
    """
    folders: list[str] = []
    allow_the_deepest_folders()
    seen: set[str] = set()  # of files and globs
    for number, path in enumerate(paths, 1):
        is_folder = path != STDIN and os.path.isdir(path)
        for found in _below(path):
            if isinstance(found, str):
                if found in seen or any(is_below(found, folder) for folder in folders):
                    continue
                if number < len(paths) and not is_folder:  # nothing comes behind the last that might be the same
                    seen.add(found)
            yield found
        if is_folder:
            folders.append(path)


def plan(path: str, source: Literal["job", "kernel", "auto"]) -> Task | Unread:
    """How to read one file, by its name and its first lines."""
    try:
        first = head(path, SAMPLE_BYTES)
    except OSError as error:
        return Unread(path, error.strerror or str(error))
    lines = [line for line in first.split(b"\n")[:SAMPLE_LINES] if line.strip()]
    if source == "auto" and (what := document_of(lines)):
        return Unread(path, f"is {what}, no log; --source job reads it all the same", is_document=True)
    kind: SourceKind = source if source != "auto" else ("kernel" if _is_kernel(path, lines) else "job")
    return Task(path, kind, form_of(lines, kind))


def form_of(lines: Sequence[bytes], source: SourceKind) -> LogFormat:
    """The carrier that the first lines show."""
    clock = Clock(0.0)
    sample = lines[:10]
    if sample and all(decode.cri_part(line, clock).stream for line in sample):
        return "cri"
    if sample and all(decode.docker_part(line, clock).stream for line in sample):
        return "docker"
    if source == "kernel" and sample and any(decode.is_kmsg(line) for line in sample):
        return "kmsg"
    return "plain"


def _is_kernel(path: str, lines: Sequence[bytes]) -> bool:
    marked = sum(decode.looks_like_kernel(line) for line in lines)
    named = any(name in os.path.basename(path) for name in _KERNEL_NAMES)
    return marked * 2 > len(lines) or (named and marked > 0)


def _below(path: str) -> Iterable[str | Unread]:
    if path == STDIN:
        return [path]
    if os.path.isdir(path):
        return _in_folder(path)
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(p for p in glob.glob(path, recursive=True) if os.path.isfile(p))
    return found or [Unread(path, "matches no file")]


def _in_folder(folder: str) -> Iterator[str | Unread]:
    for found in files_below(folder):
        yield found if isinstance(found, str) else Unread(str(found.filename), found.strerror or str(found))
