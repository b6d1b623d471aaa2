"""Reading of the alerts that a Prometheus fired in a window, from its series `ALERTS`."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.fleet.input.prometheus_api import Api
from exporter.fleet.input.prometheus_history import MAX_POINTS
from exporter.fleet.observations import Window
from exporter.fleet.statistics.exposure import edges_of

SELECTOR = 'alertname=~"Gpufault.+"'
RULES = "cluster:gpufault_nodes:count"  # a rule that gives a value whenever daemons are scraped
STEP = 60.0  # seconds: rules are evaluated each minute by default
SAME_FIRING = 900.0  # a gap of so many seconds is a restart of Prometheus, not a second alert


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One alert that fired from `start` to `end`. `began_before`: it fired already when the window began."""

    name: str
    severity: str
    labels: Mapping[str, str]
    start: float
    end: float
    began_before: bool = False


def alerts(api: Api, window: Window, selector: str = SELECTOR) -> tuple[Firing, ...]:
    """The alerts that fired in a window, earliest first. selector: matchers of alerts. Raises NoAnswer."""
    seen: dict[tuple[tuple[str, str], ...], list[float]] = {}
    query = f'ALERTS{{alertstate="firing",{selector}}}'
    edges = [window.start - SAME_FIRING, *edges_of(window).tolist()[1:]]
    for start, end in itertools.pairwise(edges):  # day by day: an answer of a whole window may have gigabytes
        for series in api.over(query, start, end - 1, max(STEP, (end - start) / MAX_POINTS)):
            seen.setdefault(tuple(sorted(series.labels.items())), []).extend(time for time, _ in series.samples)
    firings = [firing for labels, times in seen.items() for firing in _firings(dict(labels), times, window)]
    return tuple(sorted(firings, key=lambda firing: (firing.start, firing.name, sorted(firing.labels.items()))))


def are_rules_loaded(api: Api, window: Window) -> bool:
    """Whether our rules were evaluated at any time of the last day of a window. Raises NoAnswer."""
    span = min(86400.0, window.end - window.start)
    return bool(api.at(f"count(count_over_time({RULES}[{span:.0f}s]))", window.end))


def _firings(labels: Mapping[str, str], times: Iterable[float], window: Window) -> list[Firing]:
    """Spans of the times without a long gap that reach into the window."""
    spans: list[list[float]] = []
    for time in sorted(times):
        if spans and time - spans[-1][1] <= SAME_FIRING:
            spans[-1][1] = time
        else:
            spans.append([time, time])
    return [
        Firing(
            name=labels.get("alertname", ""), severity=labels.get("severity", ""), labels=labels,
            start=start, end=min(last + STEP, window.end), began_before=start < window.start,
        )
        for start, last in spans
        if last >= window.start
    ]  # fmt: skip
