"""A pattern as it is searched for: only in texts that hold what it requires, compiled when there is one, within a time.

Most patterns that a line's gates lead to are ruled out by a literal (0.3 µs, against 2 µs and more for a search), and most
of a catalogue is never compiled: each takes half a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from exporter.core.patterns.required_literals import Needs, needs
from exporter.core.patterns.syntax import FLAGS

if TYPE_CHECKING:
    import regex

TIMEOUT_SECONDS = 0.05  # a hundred times what the slowest built-in pattern takes on a text of MAX_TEXT characters
TRIES = 4  # a search takes microseconds: that another's time is taken for its own four times in a row does not happen


def search_in_time(compiled: regex.Pattern[str], text: str) -> regex.Match[str] | None:
    """Where a pattern is first found. Raises TimeoutError.

    `regex` goes by clock(): the CPU time of all threads, in which a virtual machine counts what it was halted for. Without
    `concurrent=False` it also lets other threads run at the start of every search, and waits for them: the 55 ms of one
    collection of garbage there, or a dozen probes in turn, ran a search of microseconds out of its time.
    """
    tries = 1
    while True:
        try:
            return compiled.search(text, concurrent=False, timeout=TIMEOUT_SECONDS)
        except TimeoutError:
            if tries == TRIES:
                raise
            tries += 1


class Expression:
    """One pattern. `needed`: what it needs, if that is already known."""

    __slots__ = ("_compiled", "_needs", "pattern")

    def __init__(self, pattern: str, needed: Needs | None = None) -> None:
        self.pattern = pattern
        self._needs = needed
        self._compiled: regex.Pattern[str] | None = None

    @property
    def needs(self) -> Needs:
        """What a text must hold."""
        if self._needs is None:
            self._needs = needs(self.pattern)
        return self._needs

    def find(self, text: str) -> regex.Match[str] | None:
        """The first match in a text. Raises TimeoutError."""
        needs = self._needs or self.needs
        if not _holds(text, needs.sets, ignore_case=needs.ignore_case):
            return None
        if self._compiled is None:
            import regex  # takes 12 ms, and most logs need none of it

            self._compiled = regex.compile(self.pattern, FLAGS)
        return search_in_time(self._compiled, text)

    def may_begin_in(self, line: str) -> bool:
        """Whether a match may begin in a line, whatever comes behind it."""
        return _holds(line, self.needs.first, ignore_case=self.needs.ignore_case)


def _holds(text: str, sets: Sequence[Sequence[str]], *, ignore_case: bool) -> bool:
    """Whether a text holds of each set one literal."""
    if ignore_case:
        if not text.isascii():  # letters beyond ASCII equal ASCII ones, which lower() does not know
            return True
        text = text.lower()
    for literals in sets:
        for literal in literals:
            if literal in text:
                break
        else:
            return False
    return True
