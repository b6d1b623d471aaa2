"""Answers that stay the same until the history or the last result changes: made once for all readers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from starlette.responses import Response

MAX_ANSWERS = 500
MAX_BYTES = 64 << 20


@dataclass(slots=True, eq=False)
class _Entry:
    state: Hashable
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: Response | None = None


class PageCache:
    """Answers by address. Readers that ask for the same page at the same time wait for one to make it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def get(self, address: Hashable, state: Hashable, make: Callable[[], Response]) -> Response:
        """The answer that was made in this state, else a new one. What `make` raises is not kept."""
        with self._lock:
            entry = self._entries.get(address)
            if entry is None or entry.state != state:
                entry = self._entries[address] = _Entry(state)
            self._entries.move_to_end(address)
        with entry.lock:
            if entry.answer is None:
                entry.answer = make()
                self._shrink()
            return entry.answer

    def _shrink(self) -> None:
        with self._lock:
            size = sum(len(each.answer.body) for each in self._entries.values() if each.answer)
            while len(self._entries) > MAX_ANSWERS or (size > MAX_BYTES and len(self._entries) > 1):
                _, oldest = self._entries.popitem(last=False)
                size -= len(oldest.answer.body) if oldest.answer else 0
