"""Which of many patterns a text may show, told in one pass, so that few of them are tried on it. Knows no rules.

`regex` decides; this only spares it the patterns that cannot match. Hyperscan reads a pattern as PCRE does and takes what
it cannot do, a look-ahead say, for fulfilled. What it might read more narrowly than `regex` is never left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

WORTH_IT = 4096  # texts; a database takes some 5 ms a pattern to build, and spares each text 20 µs or more

# Outside ASCII, and for the separators \x1c-\x1f, \w, \d, \s and \b mean more to `regex` than to Hyperscan.
_READ_DIFFERENTLY = rb"[\x1c-\x1f\x80-\xff]"
# regex's own: fuzzy matching such as {e<=1}; flags for all of a pattern that stand behind its beginning; and letters
# beyond ASCII that equal ASCII ones when case is ignored (the Kelvin sign is a k).
OF_REGEX_ALONE = re.compile(r"\{[^{}\\]*[a-z<][^{}]*\}|(?<!\A)\(\?[a-zA-Z]+\)|\(\?[a-zA-Z]*i(?s:.)*[^\x00-\x7f]")


class Prefilter:
    """Asks one database for all patterns, built when the question has been put `worth_it` times. Not for two threads at
    once. `wanted` is False where Hyperscan is not to be used; where it is not installed, nothing is ever ruled out.
    """

    def __init__(self, patterns: Sequence[str], *, wanted: bool = True, worth_it: int = WORTH_IT) -> None:
        self._patterns = tuple(patterns)
        self._wanted = wanted
        self._worth_it = worth_it
        self._asked = 0
        self._database: Any = None
        self._always: list[int] = []
        self._found: list[int] = []

    def possible(self, text: str) -> list[int] | None:
        """The indices, ascending, of the patterns that may be in the text; None if nothing can be ruled out.

        All that `regex` finds in it are among them.
        """
        if self._database is None:
            self._asked += 1
            if not self._wanted or self._asked <= self._worth_it or not self._build():
                return None
        if text.endswith("\n"):  # `regex` sees a line behind it, and PCRE sees none
            return None
        self._found = []
        self._database.scan(text.encode("utf-8", "surrogatepass"), match_event_handler=self._on_match)
        if not self._found:
            return self._always
        if len(self._patterns) in self._found:
            return None
        return sorted([*self._always, *self._found])

    def _on_match(self, index: int, _from: int, _to: int, _flags: int, _context: Any) -> None:
        self._found.append(index)

    def _build(self) -> bool:
        try:
            import hyperscan
        except ImportError:
            self._wanted = False
            return False
        chosen = [i for i, pattern in enumerate(self._patterns) if not OF_REGEX_ALONE.search(pattern)]
        try:
            self._database = self._compiled(chosen)
        except hyperscan.error:  # it does not say of which pattern
            chosen = [i for i in chosen if self._is_known(i)]
            self._database = self._compiled(chosen)
        self._always = sorted(set(range(len(self._patterns))).difference(chosen))
        return True

    def _is_known(self, index: int) -> bool:
        import hyperscan

        try:
            self._compiled([index])
        except hyperscan.error:
            return False
        return True

    def _compiled(self, chosen: Sequence[int]) -> Any:
        import hyperscan

        flags = hyperscan.HS_FLAG_PREFILTER | hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_MULTILINE
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(
            expressions=[_READ_DIFFERENTLY, *(self._patterns[index].encode() for index in chosen)],
            ids=[len(self._patterns), *chosen],
            elements=len(chosen) + 1,
            flags=[flags] * (len(chosen) + 1),
        )
        return database
