"""SVG elements as text: escaped, rounded, and labels cut to the room they have."""

from __future__ import annotations

from html import escape

from exporter.core.text.phrases import printable

CHARACTER = 6.3  # pixels of a usual character in the charts' font of 11 px
LEFT, RIGHT = "start", "end"
VERDICTS = ("infrastructure", "workload", "unclear")  # the classes of colours, by whose fault it is


def element(tag: str, *inside: str, **attributes: object) -> str:
    """One element. `inside` is SVG already. Attributes: `class_` is class, `_` becomes `-`; None is left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{written}/>"


def chart(kind: str, width: float, height: float, title: str, description: str, *inside: str) -> str:
    """A whole chart with an accessible title and description."""
    return element(
        "svg",
        element("title", words(title)),
        element("desc", words(description)),
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        class_=f"chart {kind}",
        viewBox=f"0 0 {_value(width)} {_value(height)}",
        width=width,
        height=height,
        role="img",
    )


def words(text: str) -> str:
    """A text from anywhere as text of an element: on one line, printable, escaped."""
    return escape(printable(" ".join(text.split())))


def label(x: float, y: float, text: str, *, room: float, anchor: str = LEFT, class_: str | None = None) -> str:
    """A text cut to `room` pixels; a cut one has the whole as its tooltip."""
    shown = cut(text, room)
    tooltip = element("title", words(text[:500])) if shown.endswith("…") else ""
    return element(
        "text", tooltip, words(shown), x=x, y=y, text_anchor=None if anchor == LEFT else anchor, class_=class_
    )


def cut(text: str, room: float) -> str:
    """A text of at most so many pixels, on one line."""
    most = max(int(room / CHARACTER), 1)
    line = printable(" ".join(text[: 10 * most].split()))
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def colour(verdict: str | None) -> str:
    """The class of a verdict's colour; of anything else that of `unclear`."""
    return verdict if verdict in VERDICTS else "unclear"


def empty(kind: str, width: float, title: str, what: str = "no data in this window") -> str:
    """The chart of no data."""
    return chart(kind, width, 48, title, what, label(width / 2, 28, what, room=width, anchor="middle"))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)
