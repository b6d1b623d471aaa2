"""A pattern as it is searched for: only in texts that hold what it requires, compiled when there is one, within a time.

Most patterns that a line's gates lead to are ruled out by a literal (0.3 µs, against 2 µs and more for a search), and most
of a catalogue is never compiled: each takes half a millisecond.
"""

from __future__ import annotations

import regex

from exporter.core.gates import Needs, needs
from exporter.core.knowledge import FLAGS

TIMEOUT_SECONDS = 0.05  # a hundred times what the slowest built-in pattern takes on a text of MAX_TEXT characters


class Expression:
    """One pattern. `known` is what it needs, where that has been found out before."""

    __slots__ = ("_compiled", "_needs", "pattern")

    def __init__(self, pattern: str, known: Needs | None = None) -> None:
        self.pattern = pattern
        self._needs = known
        self._compiled: regex.Pattern[str] | None = None

    @property
    def needs(self) -> Needs:
        """What a text must hold."""
        if self._needs is None:
            self._needs = needs(self.pattern)
        return self._needs

    def find(self, text: str) -> regex.Match[str] | None:
        """Where the pattern is first found. Raises TimeoutError."""
        sets, ignore_case = self._needs or self.needs
        if ignore_case:
            if not text.isascii():  # letters beyond ASCII equal ASCII ones, which lower() does not know
                return self._search(text)
            looked_in = text.lower()
        else:
            looked_in = text
        for literals in sets:
            for literal in literals:
                if literal in looked_in:
                    break
            else:
                return None
        return self._search(text)

    def _search(self, text: str) -> regex.Match[str] | None:
        if self._compiled is None:
            self._compiled = regex.compile(self.pattern, FLAGS)
        return self._compiled.search(text, timeout=TIMEOUT_SECONDS)
