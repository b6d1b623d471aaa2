"""The review of one window against the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from exporter.fleet.observations import Window
from exporter.fleet.review import queries
from exporter.fleet.review.sentence import sentence
from exporter.fleet.review.titles import title_of
from exporter.fleet.review.values import CauseRow, Novelty, Overview, Title
from exporter.fleet.statistics.ratio import Ratio, rate_ratio

WINDOWS = 8  # of a trend
REACH = 0.1  # of the window before may be missing, as the correlator has it
QUIET_WINDOWS = 2  # without a signature, after which it is said to be back


def overview(
    db: duckdb.DuckDBPyConnection, window: Window, correlation: Mapping[str, Any] | None, titles: Mapping[str, Title],
    *, compare: bool = True,
) -> Overview:  # fmt: skip
    """Everything on the first page. correlation: the correlator's JSON of this window, if there is one.

    compare: with the window before, if the records reach back so far.
    """
    span = window.end - window.start
    before = Window(start=window.start - span, end=window.start)
    begin = queries.oldest(db)
    reaches = begin is not None and begin <= before.start + REACH * span
    compared = before if compare and reaches else None
    exposure = queries.exposure_of(db, Window(start=before.start if compared else window.start, end=window.end))
    now = queries.totals(db, window, exposure)
    then = queries.totals(db, compared, exposure) if compared else None
    odds = now.hours / then.hours if then and then.hours > 0 else 0.0
    causes = _causes(db, window, begin, odds, titles)
    novelties = _novelties(db, window, titles) if reaches else ()
    nodes = queries.nodes_watched(db, window)
    change = _ratio(now.origins, then.origins, odds) if then else None
    return Overview(
        window=window, before=compared,
        sentence=sentence(window, now, then, change, nodes, causes, novelties, correlation, titles),
        nodes=nodes, silent=queries.silent_nodes(db, window), exposure=exposure,
        totals=now, totals_before=then, change=change,
        over_time=queries.over_time(db, window, begin if begin is not None else window.start),
        causes=causes, novelties=novelties, unrecognised=queries.unrecognised(db, window), correlation=correlation,
        deaths=queries.deaths(db, window),
    )  # fmt: skip


def _causes(
    db: duckdb.DuckDBPyConnection, window: Window, begin: float | None, odds: float, titles: Mapping[str, Title]
) -> tuple[CauseRow, ...]:
    """This window's causes, the most frequent first; then those of the window before that are gone."""
    span = window.end - window.start
    lost = queries.lost_by_cause(db, window) if _gpus_known(db, window) else None
    first = 0 if begin is None else max(int((window.end - begin) / span + REACH), 1)
    out = []
    for kind, key, fault, nodes, jobs, counts in queries.causes(db, window, WINDOWS):
        if not counts[-1] and not (odds and counts[-2]):
            continue
        title = title_of(titles, key)
        out.append(
            CauseRow(
                kind=kind, id=key, title=title.title, verdict=fault if fault != "unclear" else title.verdict,
                remediation=title.remediation, incidents=counts[-1], nodes=nodes, jobs=jobs,
                lost_gpu_hours=None if lost is None else lost.get((kind, key), 0.0),
                before=counts[-2] if odds else None, change=_ratio(counts[-1], counts[-2], odds) if odds else None,
                trend=tuple(None if i < WINDOWS - first else n for i, n in enumerate(counts)),
            )
        )  # fmt: skip
    return tuple(out)


def _gpus_known(db: duckdb.DuckDBPyConnection, window: Window) -> bool:
    row = db.execute(queries.HAS_GPUS, {"end": window.end}).fetchone()
    return bool(row and row[0])


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
