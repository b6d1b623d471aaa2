"""The start offset in a file whose beginning is skipped: it existed at the very first start, or is a copy."""

from __future__ import annotations

from exporter.sources.files.identity import Read

COUNTED_BYTES = 64 << 20  # 20 ms from the page cache; beyond it, lines count from 1 where reading began
_BLOCK_BYTES = 1 << 20


def start_of_last_line(read: Read, size: int, line_bytes: int) -> int:
    """Where a file's last, incomplete line starts; `size` where it has none, or one that is longer than a line may be."""
    start = max(0, size - line_bytes)
    tail = read(size - start, start)
    newline = tail.rfind(b"\n")
    if newline >= 0:
        return start + newline + 1
    return 0 if start == 0 else size


def line_at(read: Read, offset: int) -> int:
    """The number of the line at `offset`, counted from 1, where that is cheap to know."""
    if offset > COUNTED_BYTES:
        return 1
    return 1 + sum(
        read(min(_BLOCK_BYTES, offset - start), start).count(b"\n") for start in range(0, offset, _BLOCK_BYTES)
    )
