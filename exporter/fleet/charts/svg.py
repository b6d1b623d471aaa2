"""SVG elements as text, scales and ticks of an axis, and the style sheet of the charts.

Elements are escaped and rounded, and labels are cut to the room they have. Colours are Okabe and Ito's, safe for colour-blind
eyes.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
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


def empty(kind: str, width: float, title: str, text: str = "no data in this window") -> str:
    return chart(kind, width, 48, title, text, label(width / 2, 28, text, room=width, anchor="middle"))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)


DAY = 86400.0


def ticks(largest: float, most: int = 4) -> list[float]:
    """Round numbers from 0 to at least `largest`, at most `most` steps: whole ones if it is a count."""
    if largest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest / most))
    step = next(power * m for m in (1, 2, 2.5, 5, 10, 20) if power * m * most >= largest * (1 - 1e-9))
    if largest >= 1:
        step = max(math.ceil(step), 1.0)
    return [step * i for i in range(math.ceil(largest / step - 1e-9) + 1)]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def decades(low: float, high: float) -> list[float]:
    """Powers of ten around two ratios, at least 0.1 to 10."""
    first = min(math.floor(math.log10(max(low, 1e-3))), -1)
    last = max(math.ceil(math.log10(min(high, 1e4))), 1)
    return [10.0**power for power in range(first, last + 1)]


def on_log(value: float, bounds: Sequence[float], begin: float, end: float) -> float:
    """The pixel of a ratio between two pixels; beyond the bounds, the nearer end."""
    low, high = math.log10(bounds[0]), math.log10(bounds[-1])
    at = math.log10(min(max(value, bounds[0]), bounds[-1]))
    return begin + (at - low) / (high - low) * (end - begin)


def times(value: float) -> str:
    """A ratio on an axis: 0.1×, 1×, 10×."""
    return f"{value:g}×"


def day(time: float) -> str:
    """A day as a label: 9 Nov."""
    date = datetime.fromtimestamp(time, UTC)
    return f"{date.day} {date:%b}"


def time_ticks(start: float, end: float, most: int) -> list[float]:
    """Midnights (or hours and minutes of a shorter span), at most `most`."""
    span = max(end - start, 1.0)
    steps = (
        [60.0 * m for m in (1, 2, 5, 15, 30)]
        + [3600.0 * h for h in (1, 3, 6, 12)]
        + [DAY * d for d in (1, 2, 7, 14, 28, 91, 365)]
    )
    step = next((s for s in steps if span / s <= most), math.ceil(span / DAY / most) * DAY)
    first = math.ceil(start / min(step, DAY)) * min(step, DAY)
    return [first + i * step for i in range(int((end - first) / step) + 1) if first + i * step <= end]


def moment(time: float, span: float) -> str:
    """A time as a label: the hour within two days, else the day."""
    return f"{datetime.fromtimestamp(time, UTC):%H:%M}" if span <= 2 * DAY else day(time)


LIGHT = """--infrastructure:#c2410c;--workload:#2563a8;--unclear:#8a8f98;--ink:#1c1f23;--dim:#5b656d;--grid:#e7e9eb;
--background:#fbfbfa;--card:#fff;--line:#e1e4e7;--worse:#b3261e;--better:#17734f;--accent:#2563a8"""
DARK = """--infrastructure:#f59e6b;--workload:#7fb4ea;--unclear:#9aa3ad;--ink:#e6e9ec;--dim:#a0aab3;--grid:#272d34;
--background:#111418;--card:#181c21;--line:#2d343b;--worse:#f28b82;--better:#5cc79b;--accent:#7fb4ea"""

CSS = """
.chart{display:block;max-width:100%;height:auto;font:11px system-ui,-apple-system,"Segoe UI",sans-serif}
.chart text{fill:var(--dim)}.chart .strong{fill:var(--ink)}
.chart .grid{stroke:var(--grid)}.chart .axis{stroke:var(--dim)}.chart .mark{stroke:var(--ink);stroke-dasharray:3 3}
.chart .infrastructure{fill:var(--infrastructure)}.chart .workload{fill:var(--workload)}.chart .unclear{fill:var(--unclear)}
.chart line.infrastructure{stroke:var(--infrastructure)}.chart line.workload{stroke:var(--workload)}
.chart line.unclear{stroke:var(--unclear)}.chart line{stroke-width:1}.chart line.interval{stroke-width:2}
.chart .spark{fill:none;stroke:var(--dim);stroke-width:1.5}.chart .empty{fill:var(--grid)}
.chart .change{fill:var(--ink)}.chart .span{fill-opacity:.25;stroke:var(--unclear)}
.chart .span.infrastructure{stroke:var(--infrastructure)}.chart .span.workload{stroke:var(--workload)}
.narrow{display:none}
@media screen and (max-width:44rem){.narrow{display:block}.wide{display:none}}
@media print{.chart{font-size:13px}}
"""
