"""Buffers lines that a source has read and the pipeline has not consumed, for logs that cannot be read again.

It knows the end of each line and the position after it, but not what a position is or where lines come from.
"""

from collections import deque
from collections.abc import Mapping
from typing import Generic, Literal, TypeVar

QUIET_SECONDS = 1.0  # the writers of a block of lines are done within milliseconds; a second is what freshness allows

PositionT = TypeVar("PositionT")


class Backlog(Generic[PositionT]):
    """The unconsumed lines of one log, each with the position after it."""

    def __init__(self, offset: int = 0, line: int = 1) -> None:
        self.offset = offset  # of the first unconsumed byte, counted over the whole life of the log
        self.line = line
        self._data = bytearray()
        # Of each line: the offset behind it, when it was read, the position, and the number.
        self._ends: deque[tuple[int, float, PositionT, int]] = deque()
        self._grown = False
        self._offered = 0.0

    def __len__(self) -> int:
        return len(self._data)

    @property
    def data(self) -> bytes:
        return bytes(self._data)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(number for *_, number in self._ends)

    def add(self, line: bytes, position: PositionT, now: float, number: int = 0) -> None:
        self._data += line
        self._ends.append((self.offset + len(self._data), now, position, number))
        self._grown = True

    def advance(self, consumed: int, lines: int) -> list[PositionT]:
        """Discard consumed bytes. Returns the positions after the lines that are now complete, in order."""
        if consumed > len(self._data):
            raise ValueError(f"{consumed} bytes consumed of {len(self._data)} that were handed out")
        del self._data[:consumed]
        self.offset += consumed
        self.line += lines
        reached = []
        while self._ends and self._ends[0][0] <= self.offset:
            reached.append(self._ends.popleft()[2])
        return reached

    def due(self, now: float) -> Literal["more", "quiet"] | None:
        """How to pass the data on: as `more` if it has grown, else as `quiet` once a second."""
        if not self._data:
            return None
        if not self._grown and 0 <= now - self._offered < QUIET_SECONDS:  # a clock set back must not silence a log
            return None
        end: Literal["more", "quiet"] = "more" if self._grown else "quiet"
        self._grown, self._offered = False, now
        return end

    def age(self, now: float) -> float:
        """Seconds since the oldest line was read."""
        return max(0.0, now - self._ends[0][1]) if self._ends else 0.0


def changes(current: Mapping[str, str], saved: Mapping[str, str]) -> dict[str, str | None]:
    """The changes from the `saved` positions to the current ones: key to text, or None for a removed key."""
    changed: dict[str, str | None] = {key: text for key, text in current.items() if saved.get(key) != text}
    return changed | dict.fromkeys(saved.keys() - current.keys())
