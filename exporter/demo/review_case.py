"""The simulated fleet that shows what the pages are for: six weeks, and in the last one a driver rollout that breaks
NVLinks. Beside it: a library version that makes collectives hang, a bad node, a new fault of one team, nodes that fell
silent, and crashes that no signature names.
"""

from dataclasses import replace

import numpy as np

from exporter.demo.review_crashes import CRASHES, GPUS
from exporter.demo.simulated_changes import PlantedRollout
from exporter.demo.simulator import DAY, START, Fleet, FleetPlan, Planted, simulate
from exporter.fleet.observations import Bools, FactRows, Floats, Incidents, Ints

NAME = "review"
NODES, DAYS, SEED = 2000, 42.0, 1
ROLLOUT_DAYS = 4.8  # before the end
BAD_NODE, BAD_CRASHES = 0.206, 7  # the node's place in the fleet; crashes of the last week
SILENT_FROM, SILENT_NODES, SILENT_DAYS = 0.61, 12, 3.4
NEW_DAYS, NEW_CRASHES, NEW_USER = 3.0, 6, 17
USERS = 200
SHADOW_SHARE = 0.04  # of the nodes have one of the two facts that go together, and not the other
BREAKING, HANGING = "nv_xid_74_nvlink_error", "nccl_watchdog_timeout"
NEW_FAULT, NODE_FAULTS = "triton_compile_failed", ("nv_xid_79_fallen_off_bus", "nv_xid_94_contained_ecc")

_FACTS = (
    ("gpu_model", (("NVIDIA H100 80GB HBM3", 0.55), ("NVIDIA A100-SXM4-80GB", 0.3), ("NVIDIA H200", 0.15))),
    ("gpu_count", (("8", 1.0),)),
    ("os", (("Ubuntu 22.04.5 LTS", 0.8), ("Ubuntu 24.04.3 LTS", 0.2))),
    ("bios_version", (("2.1.4", 0.45), ("2.2.0", 0.35), ("2.3.1", 0.2))),
    ("nccl_version", (("2.25.1", 0.52), ("2.27.5", 0.36), ("2.26.2", 0.12))),
    ("ib_firmware", (("28.39.2048", 0.6), ("28.42.1000", 0.4))),
    ("kernel_release", (("6.8.0-45-generic", 0.7), ("6.8.0-49-generic", 0.3))),
    ("cuda_version", (("12.4", 0.5), ("12.8", 0.5))),
)  # fmt: skip


def plan(nodes: int = NODES, days: float = DAYS, seed: int = SEED, end: float = START + DAYS * DAY) -> FleetPlan:
    """The plan of a fleet up to `end` (Unix seconds)."""
    rollout = PlantedRollout(
        fact="driver_version", before="570.133.20", after="580.95.05", begin_days=max(days - ROLLOUT_DAYS, 0.2 * days),
        over_days=1.2, share=0.2, signature=BREAKING, ratio=11.0,
        together=(("fabricmanager_version", "570.133.20", "580.95.05"),),
    )  # fmt: skip
    return FleetPlan(
        nodes=nodes, days=days, seed=seed, start=end - days * DAY, rate=15.0, skew=0.35,
        named=tuple(name for name in CRASHES if name != NEW_FAULT), signatures=len(CRASHES) - 1, facts=len(_FACTS) + 2,
        fixed=_FACTS, rollouts=(rollout,),
        planted=(Planted(signature=HANGING, facts=(("nccl_version", "2.26.2"),), ratio=12.0),),
    )  # fmt: skip


def simulate_review(of: FleetPlan) -> Fleet:
    """The fleet of the plan, with what no rate describes."""
    fleet = simulate(of)
    rng = np.random.default_rng([of.seed, 7])
    observed, end = fleet.observed, fleet.window.end
    bad = int(BAD_NODE * of.nodes)
    weight = 1 / (np.arange(USERS) + 30.0)
    users = rng.choice(USERS, len(observed.incidents.node), p=weight / weight.sum())
    incidents = replace(observed.incidents, user=users)
    often = end - rng.uniform(0.2, 6.5, BAD_CRASHES) * DAY
    numbers = [observed.signatures.index(NODE_FAULTS[int(i > 4)]) for i in range(BAD_CRASHES)]
    incidents = _with(
        incidents, np.full(BAD_CRASHES, bad), often, numbers, rng.integers(0, USERS, BAD_CRASHES), GPUS[1]
    )
    new = np.sort(end - rng.uniform(0.1, NEW_DAYS, NEW_CRASHES) * DAY)
    signatures = (*observed.signatures, NEW_FAULT)
    incidents = _with(
        incidents, rng.integers(0, of.nodes, NEW_CRASHES), new, [len(observed.signatures)] * NEW_CRASHES,
        np.full(NEW_CRASHES, NEW_USER), "",
    )  # fmt: skip
    first = int(SILENT_FROM * of.nodes)
    silent = np.zeros(of.nodes, dtype=bool)
    silent[first : first + min(SILENT_NODES, of.nodes // 10)] = True
    since = end - min(SILENT_DAYS, of.days / 2) * DAY
    beats = observed.beats
    heard = ~(silent[beats.node] & (beats.end > since))
    return replace(
        fleet,
        observed=replace(
            observed, nodes=tuple(f"n{number:04}" for number in range(of.nodes)), signatures=signatures,
            facts=_shadowed(observed.facts, "nccl_version", "2.26.2", "torch_version", ("2.7.1", "2.8.0"), rng),
            incidents=incidents.take(~(silent[incidents.node] & (incidents.time > since))),
            beats=replace(
                beats, node=beats.node[heard], end=beats.end[heard], hours=beats.hours[heard], busy=beats.busy[heard]),
        ),
    )  # fmt: skip


def _with(
    incidents: Incidents, node: Ints, time: Floats, signature: list[int], user: Ints, gpu: str
) -> Incidents:  # fmt: skip
    """The incidents with further ones, of a job each."""
    job = int(incidents.job.max(initial=-1)) + 1 + np.arange(len(node))
    return Incidents(
        node=np.concatenate([incidents.node, node]), time=np.concatenate([incidents.time, time]),
        signature=np.concatenate([incidents.signature, signature]), job=np.concatenate([incidents.job, job]),
        user=np.concatenate([incidents.user, user]),
        id=np.concatenate([incidents.id, np.array([f"own-{number:x}" for number in job.tolist()], dtype=object)]),
        gpu=np.concatenate([incidents.gpu, np.full(len(node), gpu, dtype=object)]),
    )  # fmt: skip


def _shadowed(
    facts: FactRows, of: str, value: str, name: str, values: tuple[str, str], rng: np.random.Generator
) -> FactRows:
    """The facts with one more, whose second value nearly all nodes with `of=value` have, and hardly any others."""
    index = facts.names.index(of)
    holds = facts.codes[:, index] == facts.values[index].index(value)
    differs = rng.random(int(facts.node.max()) + 1) < SHADOW_SHARE * np.where(_by_node(facts, holds), 1.0, 0.1)
    column = (holds ^ differs[facts.node]).astype(np.int32)[:, None]
    return replace(
        facts, names=(*facts.names, name), values=(*facts.values, values), codes=np.hstack([facts.codes, column])
    )


def _by_node(facts: FactRows, holds: Bools) -> Bools:
    nodes = np.zeros(int(facts.node.max()) + 1, dtype=bool)
    nodes[facts.node[holds]] = True
    return nodes
