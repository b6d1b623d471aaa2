"""Reading of a fleet's history from a Prometheus that scrapes the node daemons.

Jobs are not visible there: crashes of one signature within one scrape are taken for one job. A crash happened after the
last scrape that does not show it, and meets the facts of that scrape.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from exporter.core.text.phrases import printable
from exporter.fleet.input.prometheus_api import Api, Series
from exporter.fleet.observations import NOT_KNOWN, Beats, FactRows, Gap, Incidents, LoadedWindow, Observed, Window
from exporter.fleet.statistics.exposure import DAY, edges_of

STEP = 300.0  # seconds: no coarser, since Prometheus looks back five minutes
NODES_A_QUERY = (
    50  # whose counters, or changed facts, are asked for together: at most 100,000 samples a fact or signature
)
SERIES_A_QUERY = 50_000  # facts of nodes in one answer: some 15 MB of JSON
MAX_POINTS = 11_000  # of a series in one answer (Prometheus' limit)
MAX_RISE = (
    1000  # crashes between two scrapes of a node: more are a flood, one job here, or a number that somebody made up
)


def load(
    api: Api, window: Window, *, selector: str = 'job="gpufault"', node: str = "instance", busy: str | None = None
) -> LoadedWindow:
    """Ask for one window.

    selector: matchers that tell the daemons' targets; node: the label that names a node; busy: an expression of GPU-busy
    hours by that label, in which `$range` stands for the span, such as 1d. Raises NoAnswer, ValueError.
    """
    step = max(STEP, (window.end - window.start) / MAX_POINTS)
    beats = _beats(api, window, selector, node, busy)
    changes = _facts(api, window, selector, node, step)
    crashes = _crashes(api, window, selector, node, step)
    # Of several nodes within one scrape the first one given counts: chance shall decide, and no name or number.
    crashes = [crashes[i] for i in np.random.default_rng(0).permutation(len(crashes))]
    names = sorted({*(b[0] for b in beats), *(c[0] for c in changes), *(c[0] for c in crashes)})
    number = {name: i for i, name in enumerate(names)}
    signatures = sorted({signature for _, signature, _ in crashes})
    gaps = [Gap(kind="partial_answer", count=1, message=f"{api.url} warns: {warning}") for warning in api.warnings]
    message = "jobs are not visible in metrics: crashes of one signature within one scrape count as one job"
    gaps.append(Gap(kind="jobs_not_visible", count=len(crashes), message=message))
    if not beats:
        gaps.append(Gap(kind="no_targets", count=0, message=f"no target was up: is {{{selector}}} right?"))
    jobs: dict[tuple[str, float], int] = {}
    observed = Observed(
        nodes=tuple(map(printable, names)),
        signatures=tuple(map(printable, signatures)),
        facts=_fact_rows(changes, number),
        beats=Beats(
            node=np.array([number[b[0]] for b in beats], dtype=np.int64),
            end=np.array([b[1] for b in beats], dtype=float),
            hours=np.array([b[2] for b in beats], dtype=float),
            busy=np.array([b[3] for b in beats], dtype=float),
        ),
        incidents=Incidents(
            node=np.array([number[c[0]] for c in crashes], dtype=np.int64),
            time=np.array([c[2] for c in crashes], dtype=float),
            signature=np.array([signatures.index(c[1]) for c in crashes], dtype=np.int64),
            job=np.array([jobs.setdefault(c[1:], len(jobs)) for c in crashes], dtype=np.int64),
            user=np.full(len(crashes), NOT_KNOWN, dtype=np.int64),
            id=np.full(len(crashes), "", dtype=object),
            gpu=np.full(len(crashes), "", dtype=object),
        ),
        gaps=tuple(gaps),
    )
    return LoadedWindow(observed=observed, window=window, before=None)


def _beats(
    api: Api, window: Window, selector: str, node: str, busy: str | None
) -> list[tuple[str, float, float, float]]:
    """(node, end, hours up, GPU-busy hours or NaN) of each part of the window."""
    out = []
    for start, end in itertools.pairwise(edges_of(window).tolist()):
        span = f"{round(end - start)}s"
        # The left end of a range is open, that of a day is not: every scrape falls into one day.
        up = api.at(f"sum by ({node}) (sum_over_time((max by ({node}) (up{{{selector}}}))[{span}:{STEP:g}s]))", end - 1)
        busy_hours = (
            {}
            if busy is None
            else {s.labels.get(node, ""): s.samples[0][1] for s in api.at(busy.replace("$range", span), end)}
        )
        hours = {s.labels[node]: s.samples[0][1] * STEP / 3600 for s in up if node in s.labels}
        out += [
            (name, end, min(up_hours, (end - start) / 3600), busy_hours.get(name, float("nan")))
            for name, up_hours in sorted(hours.items())
            if up_hours > 0
        ]
    return out


def _facts(
    api: Api, window: Window, selector: str, node: str, step: float
) -> list[tuple[str, float, Mapping[str, str]]]:
    """(node, time, facts from then on): from a snapshot a day; where two differ, from every scrape between them."""
    edges = [*np.arange(window.start + STEP, window.end, DAY).tolist(), window.end - 1]
    out: list[tuple[str, float, Mapping[str, str]]] = []
    before: dict[str, dict[str, str]] = {}
    changed: set[str] = set()
    facts: set[str] = set()
    for i, at in enumerate(edges):
        sizes = {
            s.labels["fact"]: int(s.samples[0][1])
            for s in api.at(f"count by (fact) (gpufault_node_fact{{{selector}}} == 1)", at)
            if "fact" in s.labels
        }
        facts.update(sizes)
        offset = f"{round(at - edges[i - 1])}s" if i else None
        come, gone = _difference(api, selector, node, _together({**dict.fromkeys(facts, 0), **sizes}), at, offset)
        for name, facts_of_node in come.items():
            if name not in before:
                out.append((name, window.start if i == 0 else at, facts_of_node))
            elif facts_of_node.items() - before[name].items():
                changed.add(name)
            before[name] = {**before.get(name, {}), **facts_of_node}
        # A node of which all is gone is down: it has not forgotten anything.
        changed.update(name for name, lost in gone.items() if lost.keys() != before.get(name, {}).keys())
    out = [row for row in out if row[0] not in changed]
    for names in _chunks(sorted(changed)):
        chosen = f'{selector},{node}=~"{"|".join(_pattern(n) for n in names)}"'
        out += _changes(api, window, chosen, node, sorted(facts), step)
    return out


def _difference(
    api: Api, selector: str, node: str, groups: Sequence[Sequence[str]], at: float, offset: str | None
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """The facts that are there at a time and were not before (without `offset`: all), and the reverse, by node. Nearly all
    are as they were, and are not sent.
    """
    come: dict[str, dict[str, str]] = {}
    gone: dict[str, dict[str, str]] = {}
    for group in groups:
        chosen = f'gpufault_node_fact{{{selector},fact=~"{"|".join(map(_pattern, group))}"}}'
        now, then = f"{chosen} == 1", f"{chosen} offset {offset} == 1"
        asked = (
            [(come, now)] if offset is None else [(come, f"({now}) unless {then}"), (gone, f"({then}) unless {now}")]
        )
        for values_of, query in asked:
            for series in api.at(query, at):
                if {node, "fact"} <= series.labels.keys():
                    values_of.setdefault(series.labels[node], {})[series.labels["fact"]] = series.labels.get(
                        "value", ""
                    )
    return come, gone


def _together(sizes: Mapping[str, int]) -> list[list[str]]:
    """Facts in groups that are asked for together, by how many series each has."""
    groups: list[list[str]] = []
    room = 0
    for fact, size in sorted(sizes.items()):
        if not groups or size > room:
            groups.append([])
            room = SERIES_A_QUERY
        groups[-1].append(fact)
        room -= size
    return groups


def _changes(
    api: Api, window: Window, selector: str, node: str, facts: Sequence[str], step: float
) -> Iterator[tuple[str, float, Mapping[str, str]]]:
    """The same for a few nodes, scrape by scrape."""
    at: dict[tuple[str, float], dict[str, str]] = {}
    for fact in facts:
        for series in api.over(
            f'gpufault_node_fact{{{selector},fact="{_quoted(fact)}"}} == 1', window.start, window.end - 1, step
        ):
            for time, _ in series.samples:
                at.setdefault((series.labels[node], time), {})[fact] = series.labels.get("value", "")
    last: dict[str, dict[str, str]] = {}
    for name, time in sorted(at):
        if last.get(name) != at[name, time]:
            yield name, time if name in last else window.start, at[name, time]
            last[name] = at[name, time]


def _crashes(api: Api, window: Window, selector: str, node: str, step: float) -> list[tuple[str, str, float]]:
    """(node, signature, time) of each rise of a counter."""
    own = f'{selector},root_cause!="peer_failure"'
    span = f"{round(window.end - window.start)}s"
    counter, of = f"gpufault_incidents_total{{{own}}}", f"sum by ({node}, signature)"
    most = f"{of} (max_over_time({counter}[{span}]))"  # a pair with a known cause appears with its first incident
    grown = f"{most} > ({of} ({counter} offset {span}) or {most} * 0)"
    risen = api.at(f"{grown} or {of} (increase({counter}[{span}])) > 0", window.end)
    where: dict[str, list[str]] = {}
    for series in risen:
        if node in series.labels and "signature" in series.labels:
            where.setdefault(series.labels["signature"], []).append(series.labels[node])
    out = []
    for signature, nodes in sorted(where.items()):
        for names in _chunks(sorted(nodes)):
            chosen = f'{own},signature="{_quoted(signature)}",{node}=~"{"|".join(_pattern(n) for n in names)}"'
            query = f"sum by ({node}) (gpufault_incidents_total{{{chosen}}})"
            # With the scrape at the window's end: a rise has the time of the scrape before it, which is still inside.
            for series in api.over(query, window.start, window.end, step):
                out += [(series.labels[node], signature, time) for time in _rises(series)]
    return out


def _rises(series: Series) -> Iterator[float]:
    """The time of the sample before each rise, so that a crash meets the facts from before it; a reset is not a rise, what
    comes after one is.
    """
    for (time, before), (_, after) in itertools.pairwise(series.samples):
        yield from [time] * min(round(after - before if after >= before else after), MAX_RISE)


def _fact_rows(changes: Sequence[tuple[str, float, Mapping[str, str]]], number: Mapping[str, int]) -> FactRows:
    names = sorted({fact for *_, facts in changes for fact in facts})
    values = [sorted({facts[fact] for *_, facts in changes if fact in facts}) for fact in names]
    codes_of = [{value: i for i, value in enumerate(of)} for of in values]
    codes = np.full((len(changes), len(names)), NOT_KNOWN, dtype=np.int32)
    for row, (*_, facts) in enumerate(changes):
        for column, fact in enumerate(names):
            if fact in facts:
                codes[row, column] = codes_of[column][facts[fact]]
    return FactRows(
        names=tuple(map(printable, names)), values=tuple(tuple(map(printable, of)) for of in values), codes=codes,
        node=np.array([number[name] for name, *_ in changes], dtype=np.int64),
        since=np.array([time for _, time, _ in changes], dtype=float),
    )  # fmt: skip


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), NODES_A_QUERY):
        yield names[first : first + NODES_A_QUERY]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _pattern(text: str) -> str:
    """A label's value as a regular expression inside a PromQL string; RE2 escapes as Python does, but for spaces."""
    special = "\\.+*?()|[]{}^$"
    return _quoted("".join(f"\\{c}" if c in special else c for c in text))
