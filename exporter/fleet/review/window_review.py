"""The review of one window against the one before it, and its verdict in two or three sentences."""

import math
from collections.abc import Mapping, Sequence

import duckdb
import numpy as np

from exporter.config.fleet import LostConfig
from exporter.core.text.phrases import counted, printable
from exporter.fleet.observations import Window
from exporter.fleet.results.labels import clipped, fact, ratio, times
from exporter.fleet.review import queries
from exporter.fleet.review.lost_hours import lost_by_cause, lost_hours
from exporter.fleet.review.review_contents import CauseRow, Novelty, Review, Title, Totals, title_of
from exporter.fleet.statistics.findings import Correlation
from exporter.fleet.statistics.ratio import Ratio, rate_ratio

WINDOWS = 8  # of a trend
USUAL_COST = LostConfig()
QUIET_WINDOWS = 2  # without a signature, after which it is said to be back


def review_of(
    db: duckdb.DuckDBPyConnection, window: Window, correlation: Correlation | None, titles: Mapping[str, Title],
    *, compare: bool = True, lost: LostConfig = USUAL_COST,
) -> Review:  # fmt: skip
    """Everything on the first page. correlation: the correlator's result of this window, if there is one.

    compare: with the window before, if the records reach back so far.
    """
    span = window.end - window.start
    before = Window(start=window.start - span, end=window.start)
    begin = queries.oldest(db)
    reaches = begin is not None and begin <= before.start + queries.REACH * span
    compared = before if compare and reaches else None
    exposure = queries.exposure_of(db, Window(start=before.start if compared else window.start, end=window.end))
    now = queries.totals(db, window, exposure, lost_hours(db, window, lost))
    then = queries.totals(db, compared, exposure, lost_hours(db, compared, lost)) if compared else None
    odds = now.hours / then.hours if then and then.hours > 0 else 0.0
    causes = _causes(db, window, begin, odds, titles, lost)
    novelties = _novelties(db, window, titles) if reaches else ()
    nodes = queries.nodes_watched(db, window)
    change = _ratio(now.origins, then.origins, odds) if then else None
    return Review(
        window=window, before=compared,
        sentence=sentence(window, now, then, change, nodes, causes, novelties, correlation, titles),
        nodes=nodes, silent=queries.silent_nodes(db, window), exposure=exposure,
        totals=now, totals_before=then, change=change,
        over_time=queries.over_time(db, window, begin if begin is not None else window.start),
        causes=causes, novelties=novelties, unrecognised=queries.unrecognised(db, window), correlation=correlation,
        deaths=queries.deaths(db, window),
    )  # fmt: skip


def _causes(
    db: duckdb.DuckDBPyConnection,
    window: Window,
    begin: float | None,
    odds: float,
    titles: Mapping[str, Title],
    config: LostConfig,
) -> tuple[CauseRow, ...]:
    """This window's causes, the most frequent first; then those of the window before that are gone."""
    span = window.end - window.start
    lost = lost_by_cause(db, window, config)
    first = 0 if begin is None else max(int((window.end - begin) / span + queries.REACH), 1)
    out = []
    for kind, key, fault, domain, nodes, jobs, counts in queries.causes(db, window, WINDOWS):
        if not counts[-1] and not (odds and counts[-2]):
            continue
        title = title_of(titles, key)
        out.append(
            CauseRow(
                kind=kind, id=key, title=title.title, verdict=fault if fault != "unclear" else title.verdict,
                domain=domain, remediation=title.remediation, incidents=counts[-1], nodes=nodes, jobs=jobs,
                lost_gpu_hours=None if lost is None else lost[kind, key].hours if counts[-1] else 0.0,
                before=counts[-2] if odds else None, change=_ratio(counts[-1], counts[-2], odds) if odds else None,
                trend=tuple(None if i < WINDOWS - first else n for i, n in enumerate(counts)),
            )
        )  # fmt: skip
    return tuple(out)


def _novelties(db: duckdb.DuckDBPyConnection, window: Window, titles: Mapping[str, Title]) -> tuple[Novelty, ...]:
    out = []
    for signature, fault, count, nodes, first, last in queries.first_seen(db, window):
        quiet = None if last is None else first - last
        if quiet is None or quiet >= QUIET_WINDOWS * (window.end - window.start):
            title = title_of(titles, signature)
            verdict = fault if fault != "unclear" else title.verdict
            out.append(
                Novelty(
                    signature=signature, title=title.title, verdict=verdict, incidents=count, nodes=nodes, first=first,
                    quiet_seconds=quiet,
                )
            )  # fmt: skip
    return tuple(out)


def _ratio(now: int, before: int, odds: float) -> Ratio | None:
    """The rate of now against that before, with its exact interval; None where nothing happened or was watched."""
    if odds <= 0 or now + before == 0:
        return None
    return rate_ratio(float(now), np.array([float(now + before)]), np.array([odds]))


DAY = 86400.0
MOST = 0.5  # of a rise, that one cause accounts for


def sentence(
    window: Window, now: Totals, before: Totals | None, change: Ratio | None, nodes: int, causes: Sequence[CauseRow],
    novelties: Sequence[Novelty], correlation: Correlation | None, titles: Mapping[str, Title],
) -> str:  # fmt: skip
    """How many root incidents and whether that is more; what made it so; what is new; what was found."""
    if not nodes and not now.incidents:
        return "Nothing was seen: no node reported in this window."
    seen = correlation is None or correlation.complete
    parts = [_count(window, now, before, change, nodes, "" if seen else ", as far as was seen")]
    rise = now.incidents - before.incidents if before else 0
    if change and change.low > 1 and causes:
        lead = max(causes, key=lambda c: c.incidents - (c.before or 0))
        if lead.incidents - (lead.before or 0) > MOST * rise > 0:
            parts.append(f"{quoted(lead.title)} accounts for most of the rise.")
    new = [n for n in novelties if n.quiet_seconds is None]
    if new:
        parts.append(f"New: {quoted(new[0].title)}." if len(new) == 1 else f"{len(new)} signatures are new.")
    if correlation is not None and now.incidents:
        parts.append(_findings(correlation, titles))
    return printable(" ".join(" ".join(filter(None, parts)).split()))


def quoted(title: str) -> str:
    """A title within a sentence. Many titles are sentences themselves: `A PyTorch collective timed out`."""
    return f"“{clipped(title)}”"


def earlier(window: Window) -> str:
    """The window before, in words: the week before."""
    days = (window.end - window.start) / DAY
    if abs(days - 7) < 0.01:
        return "the week before"
    if abs(days - 1) < 0.01:
        return "the day before"
    length, unit = (days, "day") if days > 1 else (days * 24, "hour")
    return f"the {length:.3g} {unit}s before" if length > 1.005 else f"the {unit} before"


def changed(change: Ratio) -> str:
    """How a rate changed: `64% more`, `2.1 times as many`, `30% fewer`; for an unclear change `about as many`."""
    if change.low <= 1 <= change.high:
        return "no clear change"
    if math.isinf(change.value):
        return "none before"
    if change.value >= 2:
        return f"{ratio(change.value)} times as many"
    percent = abs(change.value - 1) * 100
    return f"{percent:.0f}% {'more' if change.value > 1 else 'fewer'}"


def _count(window: Window, now: Totals, before: Totals | None, change: Ratio | None, nodes: int, seen: str) -> str:
    fleet = counted(nodes, "node")
    if not now.incidents:
        was = f"; {before.incidents:,} in {earlier(window)}" if before and before.incidents else ""
        return f"No root incident on {fleet}{seen}{was}."
    incidents = counted(now.incidents, "root incident")
    where = (
        f"on {counted(now.nodes_crashed, 'node') if now.nodes_crashed > nodes else f'{now.nodes_crashed:,} of {fleet}'}"
    )
    if change is None or before is None:
        return f"{incidents} {where}."
    how = changed(change)
    how = f"no clear change from {earlier(window)}" if how == "no clear change" else f"{how} than in {earlier(window)}"
    if "times as many than" in how:
        how = how.replace("many than in", "many as in")
    if how.startswith("none before"):
        how = f"none in {earlier(window)}"
    return f"{incidents} {where}, {how}."


def _findings(correlation: Correlation, titles: Mapping[str, Title]) -> str:
    findings = correlation.findings
    lead = next((finding for finding in findings if finding.direction == "more"), None)
    if lead is None:
        return ""
    crash = quoted(title_of(titles, lead.signature).title)
    since = "since the rollout of" if lead.rollout else "with"
    rest = f", and {counted(len(findings) - 1, 'more finding')}" if len(findings) > 1 else ""
    return f"{crash} is {times(lead.ratio)} {since} {fact(lead.facts[0])} ({lead.status}){rest}."
