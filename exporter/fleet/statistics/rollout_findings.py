"""Findings from the effects of rollouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exporter.core.text.counted import counted
from exporter.fleet.statistics import power
from exporter.fleet.statistics.confirm import too_few_sources
from exporter.fleet.statistics.design import ALL_ALIKE
from exporter.fleet.statistics.findings import Direction, Finding, RolloutEffect
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.workload import workload_shares

EXAMPLES = 5
SHARP_HOURS = 24.0  # an interval of the onset that is wider is worth a warning
DIFFERENT = 1.5


def rollout_findings(prepared: Prepared, effects: Sequence[RolloutEffect]) -> list[Finding]:
    """One finding for each effect."""
    return [_finding(prepared, each) for each in effects]


def _finding(prepared: Prepared, effect: RolloutEffect) -> Finding:
    direction: Direction = "more" if effect.ratio.value > 1 else "fewer"
    units = prepared.units[effect.signature]
    label = np.where(effect.use, prepared.label(ALL_ALIKE, effect.signature), -1)
    compared = effect.use[units.state]
    hit = compared & (effect.column[units.state] if direction == "more" else ~effect.column[units.state])
    incidents = units.incidents.take(hit)
    rollout = effect.rollout
    workload = workload_shares(prepared, units, label, effect.column, direction, rollout.facts[0].fact)
    against = too_few_sources(prepared, incidents.node, incidents.job, incidents.user)
    against += [f"the nodes differed before: {effect.ratio_before.value:.2g} times"] * (
        effect.ratio_before.low > 1 or effect.ratio_before.high < 1
    )
    if effect.onset_high - effect.onset_low > SHARP_HOURS:
        against.append("the onset is uncertain by more than a day")
    if rollout.crashed_before > DIFFERENT * rollout.crashed_before_expected:
        share, chance = rollout.crashed_before, rollout.crashed_before_expected
        against.append(
            f"{share:.0%} of the nodes had crashed within two weeks before the change, {chance:.0%} expected"
        )
    return Finding(
        signature=prepared.observed.signatures[effect.signature], direction=direction, family="configuration",
        facts=rollout.facts, together_with=None, observed=effect.observed, expected=effect.expected,
        crashes=effect.crashes, nodes_with=rollout.nodes, nodes_without=rollout.controls, ratio=effect.ratio,
        p_value=effect.p_value, q_value=effect.q_value, status="candidate", counter_evidence=tuple(against),
        examples=tuple(str(i) for i in incidents.id[:EXAMPLES] if i), tie_breakers=(),
        score=effect.ratio.low if direction == "more" else 1 / max(effect.ratio.high, 1e-9), workload=workload,
        rollout=effect, adjusted_for=(*prepared.adjusted_for(ALL_ALIKE), "time of the crash"),
        next_step=_next_step(prepared, effect) if direction == "more" else "",
    )  # fmt: skip


def _next_step(prepared: Prepared, effect: RolloutEffect) -> str:
    """The experiment that decides about a rollout after which crashes became more frequent: undo it on some nodes."""
    states = prepared.design.states
    hours = (np.minimum(states.until, prepared.window.end) - np.maximum(states.since, prepared.window.start)) / 3600
    nodes = len(np.unique(states.node[effect.column]))
    changed_for = float(hours[effect.column].sum()) / max(nodes, 1)
    trial = power.experiment(effect.ratio.value, effect.observed, nodes, changed_for)
    if trial is None:
        return ""
    changed, days = trial
    return (
        f"undo it on {changed:,} of the {nodes:,} nodes; {counted(days, 'day')} will show whether it is the cause. "
        "Until then, hold the rollout"
    )
