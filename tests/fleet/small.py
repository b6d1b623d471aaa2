"""Fleets small enough to be read: a few nodes, their facts over time, whole days of exposure, incidents by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from exporter.fleet.observations import Beats, FactRows, Incidents, Observed, Window

DAY = 86400.0
START = 1_780_272_000.0  # 2026-06-01
WEEK = Window(start=START, end=START + 7 * DAY)


def fleet(
    facts: Sequence[tuple[str, float, Mapping[str, str]]],
    incidents: Sequence[tuple[str, float, str, str | None]] = (),
    *,
    busy: Mapping[str, float] | None = None,
    days: int = 7,
) -> Observed:
    """facts: (node, day, facts from then on); incidents: (node, day, signature, job); busy: hours a day, where known."""
    nodes = sorted({row[0] for row in (*facts, *incidents)} | set(busy or ()))
    names = tuple(sorted({name for *_, known in facts for name in known}))
    values = tuple(tuple(sorted({known[name] for *_, known in facts if name in known})) for name in names)
    codes = [
        [values[i].index(known[name]) if name in known else -1 for i, name in enumerate(names)] for *_, known in facts
    ]
    watched = sorted({node for node, *_ in facts}) if busy is None else sorted(busy)
    signatures = tuple(sorted({signature for _, _, signature, _ in incidents}))
    jobs = sorted({job for *_, job in incidents if job})
    rows = sorted(incidents, key=lambda row: row[1])
    return Observed(
        nodes=tuple(nodes),
        signatures=signatures,
        facts=FactRows(
            names=names,
            values=values,
            node=np.array([nodes.index(node) for node, *_ in facts], dtype=np.int64),
            since=np.array([START + day * DAY for _, day, _ in facts]),
            codes=np.array(codes, dtype=np.int32).reshape(len(facts), len(names)),
        ),
        beats=Beats(
            node=np.repeat([nodes.index(node) for node in watched], days).astype(np.int64),
            end=np.tile(START + DAY * np.arange(1, days + 1), len(watched)),
            hours=np.full(len(watched) * days, 24.0),
            busy=np.repeat([np.nan if busy is None else busy[node] for node in watched], days),
        ),
        incidents=Incidents(
            node=np.array([nodes.index(row[0]) for row in rows], dtype=np.int64),
            time=np.array([START + row[1] * DAY for row in rows]),
            signature=np.array([signatures.index(row[2]) for row in rows], dtype=np.int64),
            job=np.array([jobs.index(row[3]) if row[3] else -1 for row in rows], dtype=np.int64),
            user=np.full(len(rows), -1, dtype=np.int64),
            id=np.array([f"i{i}" for i in range(len(rows))], dtype=object),
            gpu=np.full(len(rows), "", dtype=object),
        ),
    )


def few_nodes(seed: int, *, planted: bool, nodes: int = 24, hit: int = 6) -> Observed:
    """A fleet of a few nodes with twelve random facts and three signatures, of which the first crashed on `hit` nodes:
    all that have `cause=bad` and no others where planted, else any.
    """
    rng = np.random.default_rng([seed, 77])
    bad = set(rng.permutation(nodes)[:hit].tolist())
    sizes = rng.integers(2, 5, 12)
    facts = []
    for i in range(nodes):
        known = {f"fact_{k:02}": f"v{rng.integers(0, size)}" for k, size in enumerate(sizes.tolist())}
        facts.append((f"n{i:02}", 0.0, {**known, "cause": "bad" if i in bad else "good"}))
    crashed = {"crash": sorted(bad) if planted else rng.permutation(nodes)[:hit].tolist()}
    crashed |= {f"other_{k}": rng.permutation(nodes)[: int(rng.integers(1, 8))].tolist() for k in range(2)}
    incidents = [
        (f"n{i:02}", float(rng.uniform(0.01, 6.9)), signature, f"{signature}{i}")
        for signature, at in crashed.items()
        for i in at
    ]
    return fleet(facts, incidents)
