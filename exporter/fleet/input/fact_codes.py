"""Encoding of facts: each fact's values as small integers, which the correlator counts with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from exporter.fleet.observations import NOT_KNOWN, FactRows, Gap, Ints

MAX_FACTS = 1024  # names: a node states 155 and its cards, and a site a few; 200,000 of one node would take gigabytes


def rows_of_facts(rows: Sequence[tuple[int, float, str]]) -> tuple[FactRows, list[Gap]]:
    """Facts of (node, time, JSON), as codes."""
    names: dict[str, int] = {}
    values: list[dict[str, int]] = []
    cells: list[tuple[Ints, Ints]] = []
    seen: dict[str, tuple[Ints, Ints]] = {}
    for _, _, text in rows:
        found = seen.get(text)
        if found is None:
            fact, code = [], []
            for name, value in json.loads(text).items():
                index = names.setdefault(name, len(names))
                if index == len(values):
                    values.append({})
                of = values[index]
                fact.append(index)
                code.append(of.setdefault(value, len(of)))
            found = seen[text] = np.array(fact, dtype=np.int64), np.array(code, dtype=np.int64)
        cells.append(found)
    nodes = np.array([row[0] for row in rows], dtype=np.int64)
    columns, cells, gaps = _most_common(tuple(names), nodes, cells)
    codes = np.full((len(rows), len(columns)), NOT_KNOWN, dtype=np.int32)
    for row, (facts, own) in enumerate(cells):
        codes[row, facts] = own
    of_name = dict(zip(names, values, strict=True))
    return FactRows(
        names=tuple(columns), values=tuple(tuple(of_name[name]) for name in columns),
        codes=codes, node=nodes, since=np.array([row[1] for row in rows], dtype=float),
    ), gaps  # fmt: skip


def _most_common(
    names: Sequence[str], nodes: Ints, cells: list[tuple[Ints, Ints]]
) -> tuple[Sequence[str], list[tuple[Ints, Ints]], list[Gap]]:
    """The facts that most nodes report, if there are too many, and their cells."""
    if len(names) <= MAX_FACTS:
        return names, cells, []
    by = Counter(
        fact for _, fact in {(node, fact) for node, cell in zip(nodes, cells, strict=True) for fact in cell[0]}
    )
    most = sorted(by, key=lambda fact: (-by[fact], names[fact]))[:MAX_FACTS]
    place = np.full(len(names), NOT_KNOWN)
    place[most] = np.arange(len(most))
    kept = [(place[facts][left], codes[left]) for facts, codes in cells for left in [place[facts] != NOT_KNOWN]]
    what = f"of {len(names)} facts only the {MAX_FACTS} that most nodes state are looked at"
    return [names[fact] for fact in most], kept, [Gap(kind="facts_left_out", count=len(names) - MAX_FACTS, what=what)]
