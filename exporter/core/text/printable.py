"""Untrusted text, made safe for terminals and pages."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control and bidirectional characters escaped: ESC as `\\x1b`.

    Terminals obey ESC and U+009B, browsers drop NUL and refuse lone surrogates, and U+202E disguises names in both.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
