"""The result of a correlation as values: findings, rollouts, outlier nodes and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from exporter.fleet.observations import Bools, Gap, GroupLevel, Window
from exporter.fleet.statistics.continuous import is_threshold
from exporter.fleet.statistics.ratio import Ratio

Status = Literal["candidate", "confirmed"]
Direction = Literal["more", "fewer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactValue:
    """A fact and its value. `6.3.*` is all versions that begin so, `≥ 71.5` all numbers from there on."""

    fact: str
    value: str

    def __str__(self) -> str:
        return f"{self.fact} {self.value}" if is_threshold(self.value) else f"{self.fact}={self.value}"

    @property
    def key(self) -> tuple[str, str]:
        """What stays the same from window to window: a continuous fact's thresholds move a little."""
        return (self.fact, self.value[0]) if is_threshold(self.value) else (self.fact, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What a later window, which shares nothing with that of the discovery, shows of it."""

    window: Window
    observed: int
    expected: float
    p_value: float
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadShare:
    """Of a finding's crashes the share of the largest user or job, or of all users (accounts, job names, images) that
    crash with the fact far more often than elsewhere; and the finding without their crashes.

    For `container_image`, a fact of the node, `ratio` is that within images. None: no crash is left to compare. `elsewhere`: on
    so many nodes without the fact these crashed in other ways, so the finding needs both them and the fact; 0: not shown.
    """

    kind: str
    names: tuple[str, ...]
    share: float
    ratio: Ratio | None
    p_value: float
    holds: bool
    elsewhere: int = 0


OVER_REPRESENTED = {"users": "user", "account": "account", "job_name": "job name", "image": "job image"}


def whose(kind: str) -> str:
    """Whose crashes a finding is looked at without, by the kind of a share."""
    noun = OVER_REPRESENTED.get(kind)
    return f"{noun}s with far more of these crashes than of others" if noun else f"the largest {kind.replace('_', ' ')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPart:
    """One fifth of a continuous fact's values: `low` up to `high`, its crashed nodes and the expected number."""

    low: float
    high: float
    observed: int
    expected: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePart:
    """What one signature adds to the finding of a group."""

    signature: str
    observed: int
    expected: float
    crashes: int
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRates:
    """All crashes under a finding and elsewhere, repeated ones included, and their rates per 1,000 hours of exposure.

    `ratio` is adjusted like the finding; its interval allows for nodes that crash again and again.
    """

    incidents_with: int
    incidents_without: int
    rate_with: float
    rate_without: float
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One value, or a pair of them, under which a signature is more, or less, frequent than elsewhere. So may be a group
    of signatures (`level`), which `signature` then names and `signatures` lists.

    `facts` are indistinguishable, the most likely first; `together_with` is the other member of a pair.
    `observed` and `expected` count distinct origin nodes in the strata that tell something; all origins where the median node
    crashed twice or more (`counts`).
    """

    signature: str
    direction: Direction
    family: Literal["configuration", "location"]
    facts: tuple[FactValue, ...]
    together_with: FactValue | None
    observed: int
    expected: float
    crashes: int
    nodes_with: int
    nodes_without: int
    ratio: Ratio
    p_value: float
    q_value: float
    status: Status
    counter_evidence: tuple[str, ...]
    examples: tuple[str, ...]
    tie_breakers: tuple[str, ...]
    score: float  # the lower end of what the ratio is after shrinking: what findings are ordered by
    adjusted_for: tuple[str, ...] = ()
    next_step: str = ""
    rates: IncidentRates | None = None
    trend: tuple[TrendPart, ...] = ()
    workload: tuple[WorkloadShare, ...] = ()
    rollout: RolloutEffect | None = None
    counts: Literal["nodes", "crashes"] = "nodes"
    first_seen: Window | None = None
    confirmation: Confirmation | None = None
    level: Literal["signature"] | GroupLevel = "signature"
    signatures: tuple[SignaturePart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEnough:
    """A signature without a finding, and how many crashed nodes it would take to find one.

    `lead` is the value on which its crashes fall most unexpectedly, with its exact p-value, of so many `values` compared.
    """

    signature: str
    crashes: int
    needed: int
    lead: FactValue | None
    observed: int
    expected: float
    p_value: float | None
    values: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """What the window can show: the smallest rate ratio found in 4 of 5 cases, by share of the nodes with the value.

    `crashes` are the crashed nodes of the most frequent signature; `p_value` is what a single test has to reach.
    """

    crashes: int
    p_value: float
    ratios: tuple[tuple[float, float], ...]  # share, smallest rate ratio (inf: none)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierNode:
    """A node, or a GPU by its serial number, that crashes by itself far more often than its like."""

    kind: Literal["node", "gpu"]
    name: str
    node: str
    incidents: int
    jobs: int
    days: int
    expected: float
    probability: float  # that its rate is more than five times the usual one
    signatures: tuple[str, ...]
    within_days: int = 0  # days that the numbers are of, if the node is bad in these and not in the whole window
    gpu: str = ""  # of a node: the GPU that has nearly all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAtRisk:
    """Nodes under a finding or a catalogue's cause that have not crashed so far."""

    because: str
    signature: str
    status: str
    nodes: tuple[str, ...]
    count: int
    expected_7d: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Crashes per exposure of one GPU model, and the mean hours between them with their 95% interval."""

    gpu_model: str
    hours: float
    incidents: int
    mtbf: float
    mtbf_low: float
    mtbf_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A value that nodes took on within the window. `facts` changed together; `controls` are nodes that did not change.

    `crashed_before` is the share of the nodes that had crashed within two weeks before, and what chance gives. `rebooted` nodes
    booted at the change. `verdict`: empty if it could be tested, else follows_crashes, no_controls or rebooted: crashes became
    fewer, and nearly all nodes rebooted, which may be what cured them.
    """

    facts: tuple[FactValue, ...]
    before: str
    nodes: int
    controls: int
    first: float
    last: float
    crashed_before: float
    crashed_before_expected: float
    verdict: str
    rebooted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEffect:
    """What a rollout did to a signature (by number): first crashes on changed nodes against nodes not changed yet.

    `ratio_before` compares the same nodes before their change; `expected` and `ratio` allow for it. The onset is in hours
    after the change. `column` marks the states after the change, `use` all that were compared.
    """

    rollout: Rollout
    signature: int
    observed: int
    expected: float
    crashes: int
    crashes_before: int
    p_value: float
    q_value: float
    ratio: Ratio
    ratio_before: Ratio
    onset: float
    onset_low: float
    onset_high: float
    column: Bools
    use: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecedingChange:
    """Facts that changed before a signature became frequent: on how many of the affected nodes, and of the others.

    `hours_before` is the median from the change to the node's crash; `before` is the usual value of the first fact before.
    """

    facts: tuple[FactValue, ...]
    before: str
    affected: int
    affected_changed: int
    others: int
    others_changed: int
    hours_before: float
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """A signature that became frequent between `first` and `last`, and what had changed on the nodes that crashed since.

    Crashes are distinct nodes; `ratio` compares their rate since with that before.
    """

    signature: str
    first: float
    last: float
    crashes_before: int
    crashes_after: int
    ratio: Ratio
    p_value: float
    changes: tuple[PrecedingChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """The result of one run. Where data is missing (`complete` is false), findings may be missing too."""

    window: Window
    exposure: str
    exposure_hours: float
    nodes: int
    incidents: int
    origins: int
    tests: int
    complete: bool
    gaps: tuple[Gap, ...]
    findings: tuple[Finding, ...]
    locations: tuple[Finding, ...]
    not_enough_data: tuple[NotEnough, ...]
    detectable: Detectable
    outlier_nodes: tuple[OutlierNode, ...]
    exposed: tuple[NodesAtRisk, ...]
    reliability: tuple[Reliability, ...]
    rollouts: tuple[Rollout, ...]
    beginnings: tuple[Beginning, ...]

    def about(self, rollout: Rollout) -> tuple[int, ...]:
        """The places of the findings about a rollout; the first finding is 1."""
        return tuple(
            at
            for at, finding in enumerate(self.findings, 1)
            if finding.rollout and finding.rollout.rollout.facts == rollout.facts
        )
