"""Preparation of a window for testing: its states, design and units of evidence, and the gaps."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from exporter.fleet.observations import (
    Beats,
    Floats,
    Gap,
    GroupLevel,
    Incidents,
    Ints,
    Observed,
    SignatureGroup,
    Window,
)
from exporter.fleet.statistics import exposure, screen
from exporter.fleet.statistics.continuous import is_continuous
from exporter.fleet.statistics.design import (
    ALL_ALIKE,
    MIN_NODES,
    MOST_VALUES,
    SAME_MODEL,
    SAME_VENDOR,
    STRATUM_FACTS,
    Design,
    build,
    of_vendor,
)
from exporter.fleet.statistics.exposure import DAY, States, WatchedHours
from exporter.fleet.statistics.findings import FactValue
from exporter.fleet.statistics.origins import first_of_nodes, neighbourhoods, origins
from exporter.fleet.statistics.screen import Units
from exporter.fleet.statistics.silences import SILENT, silences

ALL_CRASHES = "all crashes"
OFTEN = 2  # crashes of the median node, from which on all crashes count and not only first ones
FEW, FAR = (
    0.02,
    5.0,
)  # of the nodes that crash most, and times as often as the next: any fact of theirs would explain it
MIN_SIGNATURES = 3  # of a group: two findings are read as easily
LATE_SECONDS = 86400.0  # by which a node's first facts may come too late


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One window of a fleet, ready to be tested.

    `units` is by signature number; `repeated` has those, groups too, of which the median node crashed twice or more. Groups of
    signatures are numbered after the signatures; `members` are their signatures, `pooled` their units.
    """

    observed: Observed
    window: Window
    unit: str
    watched: WatchedHours
    design: Design
    incidents: Incidents  # of the window, once each
    origins: Incidents  # of these
    units: Mapping[int, Units]
    repeated: Mapping[int, Units]
    groups: tuple[SignatureGroup, ...]
    members: Mapping[int, tuple[int, ...]]
    pooled: Mapping[int, Units]
    gaps: tuple[Gap, ...]

    def strata(self, signature: int, *, level: int) -> Ints:
        """The strata in which values of a level are compared for a signature; -1 for states that cannot be compared.

        All are compared within the signature's vendor, besides within what the level holds equal.
        """
        own = of_vendor(self.observed.facts, self.design.states, self.vendor(signature))
        return np.where(own, self.design.strata[level], -1)

    def vendor(self, number: int) -> str:
        """The vendor of a signature, or that all of a group have; else "any"."""
        names = [self.observed.signatures[s] for s in self.members.get(number, (number,))]
        vendors = {self.observed.vendors.get(name, "any") for name in names}
        return vendors.pop() if len(vendors) == 1 else "any"

    def name(self, number: int) -> str:
        """The id of a signature, or the name of a group."""
        own = len(self.observed.signatures)
        return self.observed.signatures[number] if number < own else self.groups[number - own].name

    def level_of(self, number: int) -> Literal["signature"] | GroupLevel:
        """Whether a number is a signature's, or the level of its group."""
        own = len(self.observed.signatures)
        return "signature" if number < own else self.groups[number - own].level

    def fact(self, value: int) -> FactValue:
        """A value of the design as findings name it."""
        chosen = self.design.values[value]
        return FactValue(fact=chosen.fact, value=chosen.shown)

    def number(self, name: str) -> int | None:
        """The number of a signature or group; None if it did not crash in the window."""
        return next((n for n in (*self.units, *self.pooled) if self.name(n) == name), None)

    def units_of(self, number: int) -> Units:
        """The units of a signature or group: first crashes, or all where most nodes crash again and again."""
        return next(of[number] for of in (self.repeated, self.units, self.pooled) if number in of)

    def crashed_nodes(self, number: int) -> Ints:
        """The nodes that showed a signature or group, first of their job or not."""
        rows = np.isin(self.incidents.signature, self.members.get(number, (number,)))
        return np.union1d(self.incidents.node[rows], self.units_of(number).incidents.node)

    def together(self, signatures: Collection[int]) -> Units:
        """The units of some signatures, taken as one."""
        rows = _placed(self.origins, self.design, signatures)
        if _are_repeated(rows, self.design):
            return _every_crash(rows, self.design)
        return screen.first_crash_units(rows, self.design, self.watched)

    def adjusted_for(self, level: int) -> tuple[str, ...]:
        """What findings of a level are adjusted for: the facts, and the rest, that its strata are made of."""
        names = {ALL_ALIKE: STRATUM_FACTS, SAME_MODEL: STRATUM_FACTS[:1], SAME_VENDOR: ()}[level]
        present = [name for name in names if name in self.observed.facts.names]
        return (*present, "day", "earlier crash of the node")


def prepare(observed: Observed, window: Window) -> Prepared:
    """Work out the window's exposure and units. Unusable data is reported as gaps."""
    observed = _in_order(observed)
    beats, gaps = _beats(observed, window)
    unit, amounts, missing = exposure.amounts(beats)
    if beats is not observed.beats:
        unit = exposure.ASSUMED
    watched = WatchedHours(beats, amounts)
    first_crash = np.full(len(observed.nodes), np.inf)
    beside = neighbourhoods(observed.nodes, observed.facts)
    everything = origins(observed.incidents, beside)
    np.minimum.at(first_crash, everything.node, everything.time)
    inside, silent = (
        rows.take((rows.time >= window.start) & (rows.time < window.end))
        for rows in (observed.incidents, silences(observed, beside))
    )
    origin_rows = origins(inside, beside)
    edges = exposure.edges_of(window, *_most_frequent(origin_rows, beats, window))
    states = exposure.states(observed.facts, watched, window, first_crash, edges)
    design = build(states, observed.facts)
    state = exposure.state_at(states, origin_rows.node, origin_rows.time)
    gaps = [
        *gaps,
        *missing,
        *unplaced(observed, origin_rows, state),
        *unwatched(observed, beats, states, window),
        *duplicate_names(observed),
        *_left_out(design),
    ]
    placed = origin_rows.take(state >= 0)
    units = {
        int(s): screen.first_crash_units(placed.take(placed.signature == s), design, watched)
        for s in np.unique(placed.signature)
    }
    groups = _groups(observed, units)
    if len(silent.node):
        silent = silent.take(exposure.state_at(states, silent.node, silent.time) >= 0)
        units[len(observed.signatures)] = screen.first_crash_units(silent, design, watched)
        observed = replace(observed, signatures=(*observed.signatures, SILENT))
    own = len(observed.signatures)
    numbers = {name: number for number, name in enumerate(observed.signatures)}
    members = {own + i: tuple(numbers[name] for name in group.signatures) for i, group in enumerate(groups)}
    rows_of = {number: _placed(origin_rows, design, own_signatures) for number, own_signatures in members.items()}
    pooled = {number: screen.first_crash_units(rows, design, watched) for number, rows in rows_of.items()}
    rows_of |= {number: _placed(origin_rows, design, (number,)) for number in units}
    repeated = {number: _every_crash(rows, design) for number, rows in rows_of.items() if _are_repeated(rows, design)}
    return Prepared(
        observed=observed, window=window, unit=unit, watched=watched, design=design, incidents=inside, origins=origin_rows,
        units=units, repeated=repeated, groups=groups, members=members, pooled=pooled, gaps=tuple(gaps),
    )  # fmt: skip


def _most_frequent(origin_rows: Incidents, beats: Beats, window: Window) -> tuple[Floats, int]:
    """The times of the first crashes of the signature that most nodes show, in order; and how many nodes are watched."""
    first = first_of_nodes(origin_rows)
    watched = np.unique(beats.node[(beats.end > window.start) & (beats.end - beats.hours * 3600 < window.end)])
    if not len(first.node):
        return np.zeros(0), len(watched)
    most = int(np.bincount(first.signature).argmax())
    return np.sort(first.time[first.signature == most]), len(watched)


def _placed(origin_rows: Incidents, design: Design, signatures: Collection[int]) -> Incidents:
    """The origins of some signatures that meet a state."""
    rows = origin_rows.take(np.isin(origin_rows.signature, list(signatures)))
    return rows.take(exposure.state_at(design.states, rows.node, rows.time) >= 0)


def _are_repeated(rows: Incidents, design: Design) -> bool:
    """Whether the median node crashed so often that first crashes say little of how often nodes crash."""
    return len(rows.node) >= OFTEN * design.nodes and int((np.bincount(rows.node) >= OFTEN).sum()) > design.nodes / 2


def _every_crash(rows: Incidents, design: Design) -> Units:
    """All origins, but for those of the few nodes that crash far more often than all others: such a node is bad by itself."""
    of_node = np.bincount(rows.node, minlength=design.nodes)
    usual = np.sort(of_node)[max(0, design.nodes - 1 - max(1, int(FEW * design.nodes)))]
    rows = rows.take(of_node[rows.node] <= FAR * usual)
    return screen.every_crash(rows, design)


def _groups(observed: Observed, units: Mapping[int, Units]) -> tuple[SignatureGroup, ...]:
    """All crashes, and the given groups, as far as they crashed; each set of signatures once, the widest name first."""
    crashed = {observed.signatures[number] for number in units}
    groups: dict[frozenset[str], SignatureGroup] = {}
    for group in (SignatureGroup(level="all", name=ALL_CRASHES, signatures=tuple(crashed)), *observed.groups):
        names = tuple(sorted(crashed.intersection(group.signatures)))
        if len(names) >= MIN_SIGNATURES:
            groups.setdefault(frozenset(names), replace(group, signatures=names))
    return tuple(groups.values())


def _in_order(observed: Observed) -> Observed:
    """Facts and heartbeats by node and time, with the first facts of each node dated back by a day.

    An inventory may run once a day, or report facts at the end of the hours in which they held. Dating back further would
    blame facts that came later.
    """
    facts, beats = observed.facts, observed.beats
    order = np.lexsort((facts.since, facts.node))
    node, since = facts.node[order], facts.since[order]
    since[np.unique(node, return_index=True)[1]] -= LATE_SECONDS
    facts = replace(facts, node=node, since=since, codes=facts.codes[order])
    order = np.lexsort((beats.end, beats.node))
    beats = Beats(**{name: getattr(beats, name)[order] for name in ("node", "end", "hours", "busy")})
    return replace(observed, facts=facts, beats=beats)


def _beats(observed: Observed, window: Window) -> tuple[Beats, list[Gap]]:
    """The heartbeats, or, where no node sends any, a whole window for each node with facts."""
    if len(observed.beats.node):
        return observed.beats, []
    nodes = np.unique(observed.facts.node)
    message = "no heartbeats: every node with facts is taken as watched for the whole window"
    beats = Beats(
        node=nodes,
        end=np.full(len(nodes), window.end),
        hours=np.full(len(nodes), window.hours),
        busy=np.full(len(nodes), np.nan),
    )
    return beats, [Gap(kind="no_heartbeats", count=len(nodes), message=message)]


OVERLAP = 0.25  # of a node's hours that two heartbeats claim, beyond which two machines share its name
MIN_OVERLAPS = 3  # heartbeats; a restarted daemon's may overlap once
RETURNS = 3  # of a fact to the value before its last; a rollback is one
RETURNS_OF_PARTS = 2  # of a serial number; a card that came back from repair is one
SOON = 7 * DAY  # within which a fact returns; over years, cards are swapped and come back
_PART = re.compile(r"serial|uuid|unique_id|machine_id|mac_address|asset", re.IGNORECASE)


def _left_out(design: Design) -> list[Gap]:
    """A note on the facts of which not all values are tested."""
    if not design.left_out:
        return []
    facts = sorted(design.left_out, key=lambda fact: (-design.left_out[fact], fact))
    named = ", ".join(f"{fact} ({design.left_out[fact]:,})" for fact in facts[:5])
    more = f" and {len(facts) - 5} more facts" if len(facts) > 5 else ""
    what = f"values of fewer than {MIN_NODES} nodes, or beyond a fact's {MOST_VALUES} usual ones"
    message = f"{what}, are not tested: {named}{more}"
    return [Gap(kind="values_left_out", count=sum(design.left_out.values()), message=message)]


def unplaced(observed: Observed, incidents: Incidents, state: Ints) -> list[Gap]:
    """Incidents that meet no facts or no exposure. `state` is that of each, -1 if none."""
    lost = incidents.take(state < 0)
    without_facts = ~np.isin(lost.node, observed.facts.node)
    first = np.full(len(observed.nodes), np.inf)
    np.minimum.at(first, observed.facts.node, observed.facts.since)
    too_early = ~without_facts & (lost.time < first[lost.node])
    zero = ~without_facts & ~too_early
    out = []
    for kind, which, why in (
        ("incidents_without_facts", without_facts, "on nodes whose facts are not known"),
        ("incidents_before_facts", too_early, "from before their node's first known facts"),
        ("incidents_without_exposure", zero, "on nodes, or in states of them, with no hours of exposure"),
    ):
        if count := int(which.sum()):
            names = _some(observed, lost.node[which])
            out.append(Gap(kind=kind, count=count, message=f"incidents {why} are not tested, {count} in all: {names}"))
    return out


def unwatched(observed: Observed, beats: Beats, states: States, window: Window) -> list[Gap]:
    """Nodes without facts, and nodes that were silent in the window though they reported shortly before."""
    start = beats.end - beats.hours * 3600
    beating = np.unique(beats.node[(beats.end > window.start) & (start < window.end)])
    with_facts = np.unique(observed.facts.node[observed.facts.since < window.end])
    out = []
    without_facts = np.setdiff1d(beating, with_facts)
    if len(without_facts):
        message = f"nodes without facts are left out, {len(without_facts)} in all: {_some(observed, without_facts)}"
        out.append(Gap(kind="nodes_without_facts", count=len(without_facts), message=message))
    # A node that reported nothing for a whole window before this one has left the fleet.
    since = window.start - (window.end - window.start)
    lately = np.concatenate(
        [beats.node[beats.end > since], observed.facts.node[observed.facts.since > since], observed.incidents.node]
    )
    silent = np.setdiff1d(np.intersect1d(with_facts, lately), np.unique(states.node))
    if len(silent):
        message = (
            f"nodes with facts but without exposure in the window, {len(silent)} in all: {_some(observed, silent)}"
        )
        out.append(Gap(kind="nodes_without_exposure", count=len(silent), message=message))
    return out


def _some(observed: Observed, nodes: Ints) -> str:
    names = [observed.nodes[int(node)] for node in np.unique(nodes)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def duplicate_names(observed: Observed) -> list[Gap]:
    """Nodes that must be two machines of one name: their heartbeats overlap, or their facts change to and fro."""
    nodes = np.union1d(_overlapping(observed.beats, len(observed.nodes)), _alternating(observed))
    if not len(nodes):
        return []
    message = (
        f"nodes that look like two machines of one name are counted as one node each, {len(nodes)} in all (their "
        f"heartbeats overlap or their facts change to and fro): {_some(observed, nodes)}; give each machine its own name"
    )
    return [Gap(kind="duplicate_names", count=len(nodes), message=message)]


def _overlapping(beats: Beats, nodes: int) -> Ints:
    node, end, hours = beats.node, beats.end, beats.hours
    twice = np.zeros(len(node))
    twice[1:] = np.where(node[1:] == node[:-1], end[:-1] - (end - hours * 3600)[1:], 0.0) / 3600
    twice = np.clip(twice, 0.0, hours)
    total, both = (np.bincount(node, amount, nodes) for amount in (hours, twice))
    number = np.bincount(node, twice > OVERLAP * hours, nodes)
    return np.flatnonzero((number >= MIN_OVERLAPS) & (both > OVERLAP * total))


def _alternating(observed: Observed) -> Ints:
    facts = observed.facts
    node, since = facts.node, facts.since
    third = np.flatnonzero(node[2:] == node[:-2]) + 2
    soon = since[third] - since[third - 2] <= SOON
    nodes = []
    for index, name in enumerate(facts.names):
        part = bool(_PART.search(name))
        texts = facts.values[index]
        if not part and is_continuous(name, texts):
            continue  # a temperature comes back all the time
        codes = facts.codes[:, index]
        now, last, before = codes[third], codes[third - 1], codes[third - 2]
        back = soon & (now == before) & (now != last) & (now >= 0) & (last >= 0)
        if back.any():
            times = np.bincount(node[third[back]], minlength=len(observed.nodes))
            nodes.append(np.flatnonzero(times >= (RETURNS_OF_PARTS if part else RETURNS)))
    return np.unique(np.concatenate(nodes)) if nodes else np.zeros(0, dtype=np.int64)
