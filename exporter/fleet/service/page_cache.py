"""Pages as they were rendered last: many readers of one page cost as much as one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_BYTES = 32 << 20
MAX_SECONDS = 30.0  # ages on a page are this old at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A page: its body and headers."""

    body: bytes
    headers: tuple[tuple[str, str], ...]


class PageCache:
    """For several threads. A page that is being rendered is waited for, not rendered twice."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pages: OrderedDict[Hashable, tuple[float, Rendered]] = OrderedDict()
        self._rendering: dict[Hashable, threading.Lock] = {}
        self._bytes = 0

    def get(self, key: Hashable, render: Callable[[], Rendered]) -> Rendered:
        """The page of a key, rendered if need be. Where `render` raises, nothing is kept."""
        with self._lock:
            if (found := self._found(key)) is not None:
                return found
            own = self._rendering.setdefault(key, threading.Lock())
        with own:
            with self._lock:
                if (found := self._found(key)) is not None:
                    return found
            try:
                page = render()
            finally:
                with self._lock:
                    self._rendering.pop(key, None)
            self._put(key, page)
            return page

    def _found(self, key: Hashable) -> Rendered | None:
        at, page = self._pages.get(key, (0.0, None))
        if page is None or self._clock() - at > MAX_SECONDS:
            return None
        self._pages.move_to_end(key)
        return page

    def _put(self, key: Hashable, page: Rendered) -> None:
        with self._lock:
            if key in self._pages:
                self._bytes -= len(self._pages.pop(key)[1].body)
            self._pages[key] = self._clock(), page
            self._bytes += len(page.body)
            while self._bytes > MAX_BYTES:
                self._bytes -= len(self._pages.popitem(last=False)[1][1].body)
