"""Charts of the pages, each for wide and for narrow screens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from markupsafe import Markup

from exporter.fleet.charts.over_time import Mark, stacked_bars
from exporter.fleet.results.labels import clipped
from exporter.fleet.service.frame import Frame

VERDICTS = ("infrastructure", "workload", "unclear")
MAX_BARS = 45
NARROW = 330.0
_ROOTS = "role = 'root' AND root_cause != 'peer_failure'"


def trend(frame: Frame, condition: str = "true", marks: tuple[Mark, ...] = (), **parameters: Any) -> Markup:
    """Root incidents over the window by verdict, for wide and for narrow screens."""
    store = frame.view.store
    if store is None:
        return Markup("")
    days = (frame.end - frame.start) / 86400
    step = next((s for s in (3600.0, 21600.0, 86400.0, 604800.0) if days * 86400 / s <= MAX_BARS), 2419200.0)
    first = frame.start // step * step
    bars = int((frame.end - first) // step) + 1
    edges = [first + i * step for i in range(bars + 1)]
    rows = store.rows(
        f"""SELECT verdict, floor((time - $first) / $step) AS bar, count(*) AS n FROM incidents
        WHERE time >= $start AND time < $end AND {_ROOTS} AND {condition} GROUP BY ALL""",
        {"first": first, "step": step, **frame.span, **parameters},
    )
    counts = {name: [0] * bars for name in VERDICTS}
    for row in rows:
        counts[row["verdict"] if row["verdict"] in counts else "unclear"][int(row["bar"])] += row["n"]
    series = [(name, counts[name]) for name in VERDICTS]
    unit = {3600.0: "an hour", 21600.0: "in six hours", 86400.0: "a day"}.get(step, "a week")
    return both(
        lambda width: stacked_bars(
            f"Root incidents {unit}", edges, series, unit=f"root incidents {unit}", marks=marks, width=width
        )
    )


def both(draw: Callable[[float], str], wide: float = 1080.0) -> Markup:
    """A chart for wide and one for narrow screens. `draw` takes the width; the charts escape what they are given."""
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(
        Markup(draw(wide)), Markup(draw(NARROW))  # noqa: S704 - the charts escape every text
    )  # fmt: skip


def rollout_marks(result: Any) -> tuple[Mark, ...]:
    """When rollouts began, for charts over time."""
    return tuple(
        Mark(
            time=datetime.fromisoformat(each["first"]).timestamp(),
            what=f"{clipped(each['facts'][0]['fact'])} {clipped(each['before'])} → {clipped(each['facts'][0]['value'])} "
            f"on {each['nodes']:,} nodes",
        )
        for each in (result or {}).get("rollouts", ())
        if each.get("verdict") == "tested"
    )
