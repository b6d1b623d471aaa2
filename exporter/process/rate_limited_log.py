"""Warnings that are worth saying once: not again for each of a million lines, and not never again either."""

from __future__ import annotations

from collections.abc import Callable

REMEMBERED = 1000  # messages; one that is older than so many others may be said again
A_MINUTE = 60  # of them; names of files are in them, and a job can make up names


class RateLimitedLog:
    """Says each message once, and no more than a bounded number a minute: how many more there were is said then."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._said: dict[str, None] = {}
        self._since = clock()
        self._spoken = 0

    def __call__(self, what: str) -> None:
        if what in self._said:
            return
        now = self._clock()
        if not 0 <= now - self._since < 60.0:
            if self._spoken > A_MINUTE:
                self._say(f"suppressed {self._spoken - A_MINUTE} more warnings in a minute; /metrics has the counts")
            self._since, self._spoken = now, 0
        self._spoken += 1
        if self._spoken > A_MINUTE:
            return
        self._said[what] = None
        if len(self._said) > REMEMBERED:
            del self._said[next(iter(self._said))]
        self._say(what)
