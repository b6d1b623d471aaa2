"""The simulator: fleets with known causes, to test the correlator and to try it out.

Rates, sizes of jobs and lemons follow published fleets: 6.5 node failures per 1,000 node-days (Meta RSC-1,
arXiv:2410.21680), some nodes a hundred times worse than others, jobs that take all their nodes with them. One seed, one
fleet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator

from exporter.demo.simulated_changes import (
    PlantedRollout,
    Team,
    forget_jobs,
    lose,
    more,
    of_team,
    rename,
    repair,
    roll_out,
)
from exporter.fleet.observations import NOT_KNOWN, Beats, FactRows, Floats, Incidents, Ints, Observed, Window

HOUR, DAY = 3600.0, 86400.0
START = 1_780_272_000.0  # 2026-06-01
RACK = 32  # nodes
MODELS = ("AMD Instinct MI250X", "AMD Instinct MI300X", "AMD Instinct MI300A")
MODEL_SHARES = (0.5, 0.35, 0.15)
MODEL_RATES = (1.0, 1.6, 0.7)  # crash rates differ between models; so do the facts that belong to them
USERS = 200
LEMON_SHARE = 0.01
DYING_MINUTES = 10.0  # over which a job's nodes die where jobs are not known
JOB_NODES = (4, 65)  # of a job that takes its nodes with it
PLANTED_RATE = 60.0  # crashes per 1,000 node-days, so that a planted cause shows within a week
IMAGE = "image_version"  # what a re-imaged node gets anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A cause: nodes on which all of `facts` hold show `signature` `ratio` times as often."""

    signature: str
    facts: tuple[tuple[str, str], ...]
    ratio: float

    def __post_init__(self) -> None:
        if self.ratio <= 0 or not self.facts:
            raise ValueError("a planted cause needs a fact and a rate ratio above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What to simulate. `rate` is crashes per 1,000 node-days over all signatures, at full use."""

    nodes: int = 2000
    days: float = 7.0
    seed: int = 0
    start: float = START
    rate: float = 6.5
    skew: float = 0.7  # how unlike in frequency the signatures are; 0 = all alike
    facts: int = 24
    signatures: int = 12
    named: tuple[str, ...] = ()  # their ids; else made-up ones
    planted: tuple[Planted, ...] = ()
    fixed: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = ()  # facts with given values and shares
    twins: int = 0  # facts that copy another but for 2%
    lemon: float = 1.0  # how much worse one node in a hundred is
    multi_node: float = 0.0  # the share of crashes that take a whole job's nodes with them
    reimaged: float = 0.0  # the share of crashed nodes that get a new image within hours
    repaired: float = 0.0  # the share of crashed nodes that get new firmware 4 to 12 days later
    busy_tied: bool = False  # how busy a node is goes with one of its facts
    teams: tuple[Team, ...] = ()
    rollouts: tuple[PlantedRollout, ...] = ()
    renamed: float = 0.0  # the share of nodes that get another name within the window
    missing: float = 0.0  # the share of nodes whose journals are missing, whole or from some time on
    without_jobs: bool = False  # no job is known, and the nodes of each die over ten minutes
    beat_hours: float = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A simulated fleet, the window that it fills, and the same incidents as a log counter would see them."""

    observed: Observed
    window: Window
    plan: FleetPlan
    planted: tuple[Planted, ...] = field(default=())


def simulate(plan: FleetPlan) -> Fleet:
    rng = np.random.default_rng(plan.seed)
    names, texts, codes = _facts(plan, rng)
    hours_busy = _busy(plan, codes, rng)
    named = plan.named or tuple(f"sim_fault_{i:02}" for i in range(plan.signatures))
    signatures = tuple(dict.fromkeys([*_caused(plan), *named]))[: max(plan.signatures, len(_caused(plan)))]
    rates = _rates(plan, names, texts, codes, signatures, rng)
    node, signature, time = _crashes(plan, rates, hours_busy, rng)
    incidents = _jobs(plan, node, signature, time, rng)
    facts = FactRows(
        names=names, values=texts, node=np.arange(plan.nodes), since=np.full(plan.nodes, plan.start), codes=codes
    )
    if plan.reimaged:
        facts = _reimage(plan, facts, node, time, rng)
    # What came later draws from streams of its own, so that a seed's fleet stays what it was.
    per_hour = rates * hours_busy[:, None]
    window = Window(start=plan.start, end=plan.start + plan.days * DAY)
    for i, rollout in enumerate(plan.rollouts):
        own = np.random.default_rng([plan.seed, 2, i])
        facts, since = roll_out(facts, rollout, plan.nodes, window, own)
        if rollout.signature:
            number = signatures.index(rollout.signature)
            incidents = more(incidents, per_hour[:, number] * (rollout.ratio - 1), since, window, number, own)
    for i, team in enumerate(plan.teams):
        own = np.random.default_rng([plan.seed, 3, i])
        number = signatures.index(team.signature)
        incidents = of_team(incidents, facts, per_hour[:, number], window, number, team, USERS + 100 * i, own)
    if plan.repaired:
        facts = repair(facts, incidents, plan.repaired, window, np.random.default_rng([plan.seed, 4]))
    observed = Observed(
        nodes=tuple(f"n{i:06}" for i in range(plan.nodes)),
        signatures=signatures,
        facts=facts,
        beats=_beats(plan, hours_busy),
        incidents=incidents,
    )
    if plan.without_jobs:
        observed = forget_jobs(observed, DYING_MINUTES, np.random.default_rng([plan.seed, 9]))
    if plan.renamed:
        observed = rename(observed, plan.renamed, window, np.random.default_rng([plan.seed, 7]))
    if plan.missing:
        observed = lose(observed, plan.missing, window, np.random.default_rng([plan.seed, 8]))
    return Fleet(observed=observed, window=window, plan=plan, planted=plan.planted)


def _caused(plan: FleetPlan) -> tuple[str, ...]:
    """The signatures that something of the plan makes more frequent."""
    named = [p.signature for p in plan.planted] + [t.signature for t in plan.teams]
    return tuple(dict.fromkeys([*named, *(r.signature for r in plan.rollouts if r.signature)]))


def random_causes(plan: FleetPlan, count: int, ratio: float, shares: tuple[float, float] = (0.02, 0.3)) -> FleetPlan:
    """The plan with causes planted at random: each a value with such a share of the nodes, each its own signature."""
    rng = np.random.default_rng([plan.seed, 1])
    usable = _usable(plan, shares)
    chosen = rng.permutation(len(usable))[:count]
    return replace(
        plan,
        planted=tuple(
            Planted(signature=f"sim_fault_{i:02}", facts=(usable[c],), ratio=ratio) for i, c in enumerate(chosen)
        ),
    )


def random_team(
    plan: FleetPlan, users: int, ratio: float, image: str = "", shares: tuple[float, float] = (0.05, 0.3)
) -> FleetPlan:
    """The plan with a team on the nodes with a random value, whose program makes the first signature more frequent."""
    usable = _usable(plan, shares)
    fact = usable[int(np.random.default_rng([plan.seed, 5]).integers(len(usable)))]
    team = Team(users=users, signature="sim_fault_00", fact=fact, ratio=ratio, image=image)
    return replace(plan, teams=(*plan.teams, team))


def random_rollouts(plan: FleetPlan, count: int, ratio: float) -> FleetPlan:
    """The plan with rollouts of new facts that each make a signature more frequent, at random times and shares."""
    rng = np.random.default_rng([plan.seed, 6])
    rollouts = tuple(
        PlantedRollout(
            fact=f"rollout_{i}", before="1.0", after="2.0", begin_days=float(rng.uniform(0.2, 0.4)) * plan.days,
            over_days=float(rng.uniform(0.1, 0.4)) * plan.days, share=float(rng.uniform(0.3, 0.8)),
            signature=f"sim_fault_{i:02}", ratio=ratio, onset_hours=float(rng.choice([0.0, 24.0])),
        )
        for i in range(count)
    )  # fmt: skip
    return replace(plan, rollouts=(*plan.rollouts, *rollouts))


def _usable(plan: FleetPlan, shares: tuple[float, float]) -> list[tuple[str, str]]:
    """Values with such a share of the nodes, copies and what everything else depends on aside."""
    names, texts, codes = _facts(plan, np.random.default_rng(plan.seed))
    usable = []
    for fact, name in enumerate(names):
        if name in ("gpu_model", "rack", IMAGE) or name.startswith("twin_"):
            continue
        share = np.bincount(codes[codes[:, fact] >= 0, fact], minlength=len(texts[fact])) / plan.nodes
        usable += [(name, texts[fact][v]) for v in range(len(texts[fact])) if shares[0] <= share[v] <= shares[1]]
    return usable


def _facts(
    plan: FleetPlan, rng: Generator
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], np.ndarray[tuple[int, int], np.dtype[np.int32]]]:
    """Names, values and codes. Some facts go with the GPU model, some with the rack, some copy others."""
    rack = np.arange(plan.nodes) // RACK
    model = rng.choice(len(MODELS), plan.nodes, p=MODEL_SHARES)
    names: list[str] = ["gpu_model", "rack", IMAGE]
    texts: list[tuple[str, ...]] = [
        MODELS, tuple(f"r{i:04}" for i in range(int(rack.max()) + 1)), tuple(f"2026.{i}" for i in range(1, 6))
    ]  # fmt: skip
    columns = [model, rack, rng.integers(0, 5, plan.nodes)]
    for name, values in plan.fixed:
        shares = np.array([share for _, share in values])
        column = rng.choice(len(values), plan.nodes, p=shares / shares.sum())
        if name in names:
            texts[names.index(name)], columns[names.index(name)] = tuple(v for v, _ in values), column
            continue
        names.append(name)
        texts.append(tuple(v for v, _ in values))
        columns.append(column)
    for i in range(max(plan.facts - len(names) - plan.twins, 0)):
        size = int(rng.integers(2, 8))
        shares = rng.dirichlet(np.full(size, 0.8))
        kind = i % 4
        if kind == 3:  # a version for which the model decides in four of five cases
            usual = rng.integers(0, size, len(MODELS))[model]
            column = np.where(rng.random(plan.nodes) < 0.8, usual, rng.choice(size, plan.nodes, p=shares))
        elif kind == 2:  # rolled out rack by rack
            column = rng.choice(size, int(rack.max()) + 1, p=shares)[rack]
        else:
            column = rng.choice(size, plan.nodes, p=shares)
        column = np.where(rng.random(plan.nodes) < 0.01, NOT_KNOWN, column)
        names.append(f"fact_{i:02}")
        texts.append(
            tuple(f"{1 + v // 3}.{v % 3}.{int(rng.integers(0, 9))}" if i % 2 else f"v{v}" for v in range(size))
        )
        columns.append(column)
    copied = rng.permutation(np.arange(3, len(names)))[: plan.twins]
    for i, original in enumerate(copied):
        noise = rng.integers(0, len(texts[original]), plan.nodes)
        names.append(f"twin_{i:02}")
        texts.append(tuple(f"t-{text}" for text in texts[original]))
        columns.append(np.where(rng.random(plan.nodes) < 0.02, noise, columns[original]))
    return tuple(names), tuple(texts), np.stack(columns, axis=1).astype(np.int32)


def _busy(plan: FleetPlan, codes: np.ndarray[tuple[int, int], np.dtype[np.int32]], rng: Generator) -> Floats:
    """The share of the time that each node's GPUs are busy."""
    busy = rng.beta(8, 3, plan.nodes)
    if plan.busy_tied:
        busy = np.where(codes[:, 3] == codes[:, 3].max(), 0.95, 0.35) * rng.uniform(0.9, 1.0, plan.nodes)
    return np.asarray(busy)


def _rates(
    plan: FleetPlan, names: Sequence[str], texts: Sequence[Sequence[str]],
    codes: np.ndarray[tuple[int, int], np.dtype[np.int32]], signatures: Sequence[str], rng: Generator,
) -> Floats:  # fmt: skip
    """Crashes per busy hour of each node and signature."""
    weight = 1.0 / np.arange(1, len(signatures) + 1) ** plan.skew
    rng.shuffle(weight)
    weight /= weight.sum()
    own = np.array(MODEL_RATES)[np.minimum(codes[:, 0], len(MODEL_RATES) - 1)]
    own = own * np.where(rng.random(plan.nodes) < LEMON_SHARE, plan.lemon, 1.0)
    rates = np.outer(own, weight) * plan.rate / 1000 / 24
    for cause in plan.planted:
        holds = np.ones(plan.nodes, dtype=bool)
        for fact, value in cause.facts:
            index = names.index(fact)
            holds &= codes[:, index] == texts[index].index(value)
        rates[holds, signatures.index(cause.signature)] *= cause.ratio
    return np.asarray(rates)


def _crashes(plan: FleetPlan, rates: Floats, busy: Floats, rng: Generator) -> tuple[Ints, Ints, Floats]:
    counts = rng.poisson(rates * (busy * plan.days * 24)[:, None])
    node, signature = np.nonzero(counts)
    times = counts[node, signature]
    node, signature = np.repeat(node, times), np.repeat(signature, times)
    return node, signature, plan.start + rng.uniform(0, plan.days * DAY, len(node))


def _jobs(plan: FleetPlan, node: Ints, signature: Ints, time: Floats, rng: Generator) -> Incidents:
    """The crashes as incidents of jobs: some on one node, some on all nodes of a job, seconds after the first."""
    job = np.arange(len(node))
    user = rng.zipf(1.5, len(node)) % USERS
    size = np.where(rng.random(len(node)) < plan.multi_node, rng.integers(*JOB_NODES, len(node)), 1)
    peer = np.concatenate([np.arange(s) for s in size]) if len(size) else np.zeros(0, dtype=np.int64)
    row = np.repeat(np.arange(len(node)), size)
    # A job's nodes lie beside each other, so they share racks and whatever was rolled out by rack.
    nodes = (node[row] + peer) % plan.nodes
    times = time[row] + np.where(peer > 0, rng.uniform(0.05, 5.0, len(row)), 0.0)
    ids = np.array([f"{plan.seed:x}-{i:x}" for i in range(len(row))], dtype=object)
    return Incidents(
        node=nodes, time=times, signature=signature[row], job=job[row], user=user[row], id=ids,
        gpu=np.full(len(row), "", dtype=object),
    )  # fmt: skip


def _reimage(plan: FleetPlan, facts: FactRows, node: Ints, time: Floats, rng: Generator) -> FactRows:
    """Some crashed nodes get the newest image a few hours later: facts of today would blame that image."""
    chosen = rng.random(len(node)) < plan.reimaged
    at, since = node[chosen], time[chosen] + rng.uniform(1, 6, int(chosen.sum())) * HOUR
    first = np.lexsort((since, at))
    at, since = at[first], since[first]
    at, keep = np.unique(at, return_index=True)
    codes = facts.codes[at].copy()
    codes[:, facts.names.index(IMAGE)] = len(facts.values[facts.names.index(IMAGE)]) - 1
    return replace(
        facts,
        node=np.concatenate([facts.node, at]),
        since=np.concatenate([facts.since, since[keep]]),
        codes=np.concatenate([facts.codes, codes]),
    )


def _beats(plan: FleetPlan, busy: Floats) -> Beats:
    count = max(round(plan.days * 24 / plan.beat_hours), 1)
    hours = plan.days * 24 / count
    end = plan.start + hours * HOUR * np.arange(1, count + 1)
    node = np.repeat(np.arange(plan.nodes), count)
    return Beats(
        node=node, end=np.tile(end, plan.nodes), hours=np.full(len(node), hours), busy=np.repeat(busy, count) * hours
    )
