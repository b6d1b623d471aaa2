"""Decides which files a scan reads, whether each is a job or kernel log, and its container format."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from exporter.core.decoding import formats
from exporter.core.decoding.prefixes import Clock
from exporter.core.model import LogFormat, SourceKind
from exporter.process.recursion_limit import allow_deepest_folders
from exporter.scan.documents import document_of
from exporter.scan.reader import STDIN, head
from exporter.scan.walk import files_below, is_below

SAMPLE_BYTES = 64 * 1024
SAMPLE_LINES = 60
_PACKED = {  # first bytes of binary files that are not unpacked by name
    b"PK\x03\x04": "a zip archive; scan its content: unzip -p FILE | gpufault scan -",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive; scan its content: 7z x -so FILE | gpufault scan -",
    b"\x04\x22\x4d\x18": "compressed with lz4; scan its content: lz4 -dc FILE | gpufault scan -",
    b"\x1f\x8b": "compressed with gzip; give it a name that ends in .gz, or: zcat < FILE | gpufault scan -",
    b"BZh91AY&SY": "compressed with bzip2; give it a name that ends in .bz2, or: bzcat < FILE | gpufault scan -",
    b"\xfd7zXZ\x00": "compressed with xz; give it a name that ends in .xz, or: xzcat < FILE | gpufault scan -",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; give it a name that ends in .zst, or: zstdcat < FILE | gpufault scan -",
    b"\xff\xfe": "text in UTF-16; convert it to UTF-8: iconv -f UTF-16 FILE | gpufault scan -",
    b"\xfe\xff": "text in UTF-16; convert it to UTF-8: iconv -f UTF-16 FILE | gpufault scan -",
}
# Each line with a mark of kernel logs has one of these: a tag, a time of dmesg, a priority, a header of /dev/kmsg. Escape
# sequences and NULs may hide one, and \d in a mark is any script's digit. To look for it is ten times as fast as to decode.
_KERNEL_SIGN = re.compile(
    rb"kern|\[ *\+?\d{1,9}\.\d{6}|\[[A-Z][a-z]{2} ?\d|\[[A-Z][a-z]{2} [A-Z]|<\d{1,3}>|,\d*,[^;]*;|[\x00\x1b\x80-\xff]"
)
_PARTS_OF_SIGNS = (b"[", b"kern", b"<", b";", b"\x00", b"\x1b")  # each sign has one of these, or a byte above 127
_CONTINUATION = b" " * 15  # dmesg indents the further lines of a message by the width of its timestamp
_KERNEL_NAMES = ("dmesg", "kern.log", "kmsg", "messages", "syslog")


class Task(NamedTuple):
    """One log to scan."""

    path: str
    source: SourceKind
    format: LogFormat


class Wanted(NamedTuple):
    """A log to scan, before its kind has been detected."""

    path: str
    source: Literal["job", "kernel", "auto"] = "auto"


class Unread(NamedTuple):
    """A path that was not read, and why. `is_document`: it was skipped because it is not a log."""

    path: str
    why: str
    is_document: bool = False


def expand(paths: Sequence[str]) -> Iterator[str | Unread]:
    """The paths of all files that files, folders and globs name, each once, sorted below each folder.

    A lazy iterator: a folder may hold a million files.
    """
    folders: list[str] = []
    allow_deepest_folders()
    seen: set[str] = set()  # of files and globs
    for number, given in enumerate(paths, 1):
        is_folder = given != STDIN and os.path.isdir(given)
        for path in _below(given):
            if isinstance(path, str):
                if path in seen or any(is_below(path, folder) for folder in folders):
                    continue
                if number < len(paths) and not is_folder:  # nothing after the last one can be the same
                    seen.add(path)
            yield path
        if is_folder:
            folders.append(given)


def plan(path: str, source: Literal["job", "kernel", "auto"]) -> Task | Unread:
    """Decide how to read a file, by its name and its first lines."""
    try:
        first = head(path, SAMPLE_BYTES)
    except OSError as error:
        return Unread(path, error.strerror or str(error))
    return plan_from(path, source, first)


def plan_from(path: str, source: Literal["job", "kernel", "auto"], first: bytes) -> Task | Unread:
    """Decide how to read a file, by its name and its first SAMPLE_BYTES."""
    if first.startswith(tuple(_PACKED)):
        packed = next(packer for magic, packer in _PACKED.items() if first.startswith(magic))
        return Unread(path, f"is {packed}")
    lines = [line for line in first.split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES] if line.strip()]
    if source == "auto" and (document := document_of(lines)):
        return Unread(path, f"looks like {document}, not a log; --source job reads it anyway", is_document=True)
    kind: SourceKind = source if source != "auto" else ("kernel" if _is_kernel(path, lines) else "job")
    return Task(path, kind, form_of(lines, kind))


def form_of(lines: Sequence[bytes], source: SourceKind) -> LogFormat:
    """The container format of the first lines."""
    clock = Clock(0.0)
    sample = lines[:10]
    if sample and all(formats.parse_cri(line, clock).stream for line in sample):
        return "cri"
    if sample and b"{" in sample[0] and all(formats.parse_docker(line, clock).stream for line in sample):
        return "docker"
    if source == "kernel" and sample and any(formats.is_kmsg(line) for line in sample):
        return "kmsg"
    return "plain"


def _is_kernel(path: str, lines: Sequence[bytes]) -> bool:
    """Whether more than half of the lines look like a kernel log's; one line is enough if the file's name does."""
    name = os.path.basename(path)
    lines = [line for line in lines if not line.startswith(_CONTINUATION)]
    needed = 1 if any(part in name for part in _KERNEL_NAMES) else len(lines) // 2 + 1
    others = len(lines) - needed
    text = b"\n".join(lines)
    # To search each line for a sign takes six times as long.
    has_signs = not text.isascii() or any(part in text for part in _PARTS_OF_SIGNS)
    for line in lines:
        if formats.begins_as_kernel_message(line) or (
            has_signs and _KERNEL_SIGN.search(line) and formats.resembles_kernel_line(line)
        ):
            needed -= 1
        else:
            others -= 1
        if needed == 0 or others < 0:
            break
    return needed == 0


def _below(path: str) -> Iterable[str | Unread]:
    if path == STDIN:
        return [path]
    if os.path.isdir(path):
        return _in_folder(path)
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    matches = sorted(p for p in glob.glob(path, recursive=True) if os.path.isfile(p))
    return matches or [Unread(path, "matches no file")]


def _in_folder(folder: str) -> Iterator[str | Unread]:
    for path in files_below(folder):
        yield path if isinstance(path, str) else Unread(str(path.filename), path.strerror or str(path))
