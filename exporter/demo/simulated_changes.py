"""What happens to a simulated fleet over time: rollouts, repairs, a team's program, renamed nodes, missing journals."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from exporter.fleet.observations import NOT_KNOWN, Beats, FactRows, Floats, Incidents, Ints, Observed, Window

HOUR, DAY = 3600.0, 86400.0
FIRMWARE = "firmware_version"  # what a repaired node gets anew
REPAIR_DAYS = (4.0, 12.0)  # after the crash
IMAGES = 3  # of the jobs of all who have no image of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Users whose program crashes with `signature`, on the nodes that they use: those with a fact's value. That the
    nodes show the signature `ratio` times as often is the program's doing, not the fact's.
    """

    users: int
    signature: str
    fact: tuple[str, str]
    ratio: float
    image: str = ""  # of their jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedRollout:
    """A fact that changes on a share of the nodes, one by one, and what follows on each: `signature` is `ratio` times as
    frequent from `onset_hours` after the node's change on.
    """

    fact: str
    before: str
    after: str
    begin_days: float
    over_days: float
    share: float = 1.0
    signature: str = ""  # none: it changes nothing
    ratio: float = 1.0
    onset_hours: float = 0.0
    together: tuple[tuple[str, str, str], ...] = ()  # further facts that change with it: name, before, after


def roll_out(
    facts: FactRows, rollout: PlantedRollout, nodes: int, window: Window, rng: Generator
) -> tuple[FactRows, Floats]:
    """The facts with the rollout, and from when on each node feels it; inf where it does not change."""
    chosen = np.flatnonzero(rng.random(nodes) < rollout.share)
    time = window.start + (rollout.begin_days + rng.uniform(0, 1, len(chosen)) * rollout.over_days) * DAY
    since = np.full(nodes, np.inf)
    since[chosen] = time + rollout.onset_hours * HOUR
    changes = ((rollout.fact, rollout.before, rollout.after), *rollout.together)
    for fact, before, _ in changes:
        facts = _new_fact(facts, fact, before)
    return _changed(facts, {fact: after for fact, _, after in changes}, chosen, time), since


def repair(facts: FactRows, incidents: Incidents, share: float, window: Window, rng: Generator) -> FactRows:
    """A share of the crashed nodes get new firmware days after their first crash: the change follows the crash."""
    order = np.argsort(incidents.time, kind="stable")
    node, first = np.unique(incidents.node[order], return_index=True)
    time = incidents.time[order][first] + rng.uniform(*REPAIR_DAYS, len(node)) * DAY
    chosen = (rng.random(len(node)) < share) & (time < window.end)
    return _changed(_new_fact(facts, FIRMWARE, "1.0"), {FIRMWARE: "1.1"}, node[chosen], time[chosen])


def of_team(
    incidents: Incidents, facts: FactRows, per_hour: Floats, window: Window, signature: int, team: Team, first_user: int,
    rng: Generator,
) -> Incidents:  # fmt: skip
    """The incidents with those of a team's program, and with the image of each job where the team has its own."""
    index = facts.names.index(team.fact[0])
    on = facts.codes[: len(per_hour), index] == facts.values[index].index(team.fact[1])
    users = first_user + np.arange(team.users)
    rate = np.where(on, per_hour * (team.ratio - 1), 0.0)
    images = rng.integers(0, IMAGES, len(incidents.node))
    crashes = more(incidents, rate, np.full(len(rate), window.start), window, signature, rng, users)
    if not team.image:
        return crashes
    own = np.full(len(crashes.node) - len(images), IMAGES)
    return replace(crashes, workload={"image": np.concatenate([images, own])})


def more(
    incidents: Incidents, per_hour: Floats, since: Floats, window: Window, signature: int, rng: Generator,
    users: Ints | None = None,
) -> Incidents:  # fmt: skip
    """The incidents with further ones at a rate on each node from a time on, of a job each. Without `users`, those of the
    incidents crash as often as before. The rates are 0 or more.
    """
    start = np.maximum(since, window.start)
    hours = np.maximum(window.end - start, 0) / HOUR
    node = np.repeat(np.arange(len(per_hour)), rng.poisson(per_hour * hours))
    time = start[node] + rng.uniform(0, 1, len(node)) * hours[node] * HOUR
    job = int(incidents.job.max(initial=-1)) + 1 + np.arange(len(node))
    usual = incidents.user if len(incidents.user) else np.zeros(1, dtype=np.int64)
    ids = np.array([f"more-{number:x}" for number in job.tolist()], dtype=object)
    return Incidents(
        node=np.concatenate([incidents.node, node]),
        time=np.concatenate([incidents.time, time]),
        signature=np.concatenate([incidents.signature, np.full(len(node), signature)]),
        job=np.concatenate([incidents.job, job]),
        user=np.concatenate([incidents.user, rng.choice(usual if users is None else users, len(node))]),
        id=np.concatenate([incidents.id, ids]),
        gpu=np.concatenate([incidents.gpu, np.full(len(node), "", dtype=object)]),
    )


def _changed(facts: FactRows, changes: Mapping[str, str], node: Ints, time: Floats) -> FactRows:
    """The facts with values that each of some nodes takes on at a time and keeps. Each node is given once."""
    when = np.full(int(facts.node.max()) + 1, np.inf)
    when[node] = time
    order = np.lexsort((facts.since, facts.node))
    keys, since = facts.node[order], facts.since[order]
    before = since <= when[keys]
    held = np.zeros(len(when), dtype=np.int64)
    held[keys[before]] = order[before]  # the last row of each node until then
    values, codes = list(facts.values), facts.codes.copy()
    fresh = codes[held[node]]
    for fact, value in changes.items():
        index = facts.names.index(fact)
        if value not in values[index]:
            values[index] = (*values[index], value)
        codes[order[~before], index] = fresh[:, index] = values[index].index(value)
    return replace(
        facts, values=tuple(values), node=np.concatenate([facts.node, node]),
        since=np.concatenate([facts.since, time]), codes=np.concatenate([codes, fresh]),
    )  # fmt: skip


def _new_fact(facts: FactRows, name: str, value: str) -> FactRows:
    if name in facts.names:
        return facts
    column = np.zeros((len(facts.node), 1), dtype=np.int32)
    return replace(
        facts, names=(*facts.names, name), values=(*facts.values, (value,)), codes=np.hstack([facts.codes, column])
    )


def rename(observed: Observed, share: float, window: Window, rng: Generator) -> Observed:
    """A share of the nodes have a new name from some time in the middle half of the window on, and the facts as before."""
    nodes = len(observed.nodes)
    old = np.flatnonzero(rng.random(nodes) < share)
    when = np.full(nodes, np.inf)
    when[old] = window.start + rng.uniform(0.25, 0.75, len(old)) * (window.end - window.start)
    new = np.arange(nodes)
    new[old] = nodes + np.arange(len(old))
    facts, beats, incidents = observed.facts, observed.beats, observed.incidents
    order = np.lexsort((facts.since, facts.node))
    held = np.full(nodes, -1, dtype=np.int64)
    before = facts.since[order] <= when[facts.node[order]]
    held[facts.node[order][before]] = order[before]  # the last facts under the old name
    copied = old[held[old] >= 0]
    return replace(
        observed,
        nodes=(*observed.nodes, *(f"{observed.nodes[node]}-new" for node in old.tolist())),
        facts=FactRows(
            names=facts.names, values=facts.values,
            node=np.concatenate([np.where(facts.since > when[facts.node], new[facts.node], facts.node), new[copied]]),
            since=np.concatenate([facts.since, when[copied]]), codes=np.concatenate([facts.codes, facts.codes[held[copied]]]),
        ),
        beats=replace(beats, node=np.where(beats.end > when[beats.node], new[beats.node], beats.node)),
        incidents=replace(
            incidents, node=np.where(incidents.time > when[incidents.node], new[incidents.node], incidents.node)
        ),
    )  # fmt: skip


def lose(observed: Observed, share: float, window: Window, rng: Generator) -> Observed:
    """The journals of a share of the nodes are missing: of half of these nodes all, of the others all after some time."""
    nodes = len(observed.nodes)
    lost = np.flatnonzero(rng.random(nodes) < share)
    until = np.full(nodes, np.inf)
    until[lost] = np.where(rng.random(len(lost)) < 0.5, -np.inf, rng.uniform(window.start, window.end, len(lost)))
    facts, beats, incidents = observed.facts, observed.beats, observed.incidents
    kept, beating = facts.since < until[facts.node], beats.end < until[beats.node]
    return replace(
        observed,
        facts=replace(facts, node=facts.node[kept], since=facts.since[kept], codes=facts.codes[kept]),
        beats=Beats(
            node=beats.node[beating], end=beats.end[beating], hours=beats.hours[beating], busy=beats.busy[beating]
        ),
        incidents=incidents.take(incidents.time < until[incidents.node]),
    )


def forget_jobs(observed: Observed, minutes: float, rng: Generator) -> Observed:
    """No job is known, and the nodes of each die one after the other over so many minutes."""
    incidents = observed.incidents
    _, first, job = np.unique(incidents.job, return_index=True, return_inverse=True)
    later = np.arange(len(incidents.job)) != first[job]
    time = np.where(later, incidents.time[first][job] + rng.uniform(0, minutes * 60, len(job)), incidents.time)
    nobody = np.full(len(job), NOT_KNOWN)
    return replace(observed, incidents=replace(incidents, time=time, job=nobody, user=nobody, workload={}))
