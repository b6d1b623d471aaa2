"""Text layout for terminals: widths, labelled paragraphs, colours."""

from __future__ import annotations

import shutil
import textwrap

from exporter.core.text.printable import printable

INDENT = 11


def width() -> int:
    """The columns to use: the terminal's width, limited for readability."""
    return max(60, min(100, shutil.get_terminal_size((80, 24)).columns))


def one_line(text: str) -> str:
    """A text on one line, without characters that control a terminal."""
    return printable(" ".join(text.split()))


def clipped(text: str, columns: int) -> str:
    """A text on one line, cut to a number of columns."""
    line = one_line(text)
    return line if len(line) <= columns else line[: columns - 1] + "…"


def field(name: str, text: str, *, breaks: bool = False) -> list[str]:
    """A labelled paragraph. Words too long for a line, such as references, stay whole unless `breaks`."""
    return textwrap.wrap(
        f"  {name:<{INDENT}}{one_line(text)}",
        width(),
        subsequent_indent=" " * (INDENT + 2),
        break_long_words=breaks,
        break_on_hyphens=False,
    )


def paint(text: str, code: str, color: bool) -> str:
    """Text in an ANSI colour; unchanged if colours are off."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
