"""Texts from outside as they may go to a terminal or a page."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with what has no glyph, or turns or moves what stands around it, written out: ESC as `\\x1b`.

    A terminal obeys ESC and U+009B, a browser drops NUL and refuses lone surrogates, and both show a name with U+202E in
    it as another one.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
