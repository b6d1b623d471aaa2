"""Rollouts: did a signature become more, or less, frequent on the nodes where a fact changed to a new value?

A stratified comparison of risk sets, pooled by the new value, with what was different before the change as an offset: at each
crash, the nodes that have changed are compared with those of their stratum that have not changed yet. A node leaves both
sides at its first crash, so a change that a crash brings cannot look like a cure. What cannot be judged is said: changes
that follow crashes (repairs), nodes that differed before they changed, no nodes left to compare with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from exporter.core.text.phrases import counted
from exporter.fleet.observations import Bools, Boots, Floats, Ints, Observed
from exporter.fleet.statistics import power
from exporter.fleet.statistics.confirm import too_few_sources
from exporter.fleet.statistics.design import ALL_ALIKE, is_set_by_people
from exporter.fleet.statistics.exposure import DAY, keys
from exporter.fleet.statistics.findings import Direction, FactValue, Finding, Rollout, RolloutEffect
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.ratio import PRIOR, rate_ratio
from exporter.fleet.statistics.risk_sets import NOBODY, Curve, Spans, at_risk, curve, onset
from exporter.fleet.statistics.workload import workload_shares

MIN_CHANGED = 5  # nodes
MIN_CRASHES = 5  # of a signature, with changed and unchanged nodes at risk
MIN_EFFECT = 1.5
MIN_MORE = 3  # crashes beyond, or below, the expected ones
MAX_ROLLOUTS = 100  # those of the most nodes; a fact with more new values in a window always changes
FDR = 0.05
LEAST_TESTS = 20  # tests that the gate reckons with at least
RECENT = 14 * DAY  # a change so soon after a crash may be its repair
REPAIR_P, REPAIR_RATIO = 1e-3, 2.0  # how sure, and how much more often than chance, changes follow crashes
BEFORE_P = 0.01  # of the comparison before the change
EARLY_HOURS = 6.0  # before the change: an onset that is surely earlier is not the rollout's; facts may be written late
SAME_TIME = 3600.0  # within which facts that change together are one rollout
ALIKE = 0.9  # of the nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A fact's new value and when each node took it on: inf for nodes that have not, NaN for those that cannot be
    compared. `left` is when a node gave it up again.
    """

    fact: int
    value: int
    before: int
    since: Floats
    left: Floats

    @property
    def nodes(self) -> Ints:
        """The nodes that changed."""
        return np.flatnonzero(np.isfinite(self.since))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """What one rollout shows of one signature. `odds` are those that a crash is on a changed node, one for each crash."""

    rollout: Rollout
    signature: int
    observed: int
    expected: float
    crashes: int
    crashes_before: int
    observed_before: int
    p_value: float
    odds: Floats
    odds_before: Floats

    @property
    def large(self) -> bool:
        """Whether the effect is worth a sentence."""
        rest, rest_expected = self.crashes - self.observed, self.crashes - self.expected
        more = self.observed * rest_expected >= MIN_EFFECT * rest * self.expected
        fewer = rest * self.expected >= MIN_EFFECT * self.observed * rest_expected
        return abs(self.observed - self.expected) >= MIN_MORE and (more or fewer)


def rollouts(prepared: Prepared) -> tuple[tuple[Rollout, ...], tuple[RolloutEffect, ...]]:
    """Every rollout of the window with what can be said of it, and the effects that pass the false-discovery gate."""
    described, tested = [], []
    for group in _groups(prepared, _changes(prepared)):
        lead = group[0]
        spans = _spans(prepared, lead)
        rollout = _described(prepared, group, spans)
        tests = _tests(prepared, lead, spans, rollout) if rollout.verdict == "" else []
        if rollout.verdict == "" and not tests and not _has_controls(spans):
            rollout = replace(rollout, verdict="no_controls")
        described.append(rollout)
        tested += [(spans, test) for test in tests]
    if not tested:
        return tuple(described), ()
    q = stats.false_discovery_control([test.p_value for _, test in tested]) * max(LEAST_TESTS / len(tested), 1.0)
    passed = [
        (spans, test, float(own)) for (spans, test), own in zip(tested, q, strict=True) if own <= FDR and test.large
    ]
    cured = [
        t.rollout for _, t, _ in passed if t.observed < t.expected and t.rollout.rebooted >= ALIKE * t.rollout.nodes
    ]
    effects = [
        _effect(prepared, *one) for one in passed if one[1].observed > one[1].expected or one[1].rollout not in cured
    ]
    described = [replace(rollout, verdict="rebooted") if rollout in cured else rollout for rollout in described]
    return tuple(described), tuple(effect for effect in effects if effect is not None)


def _changes(prepared: Prepared) -> list[Changed]:
    """Each new value that enough nodes took on within the window, by the number of nodes."""
    facts, window = prepared.observed.facts, prepared.window
    node, since, codes = facts.node, facts.since, facts.codes
    same = np.concatenate([[False], node[1:] == node[:-1]])
    seen = np.unique(prepared.design.states.node)
    out = []
    for fact in range(len(facts.names)):
        if not is_set_by_people(facts, fact):
            continue
        new = codes[:, fact]
        old = np.where(same, np.concatenate([[-1], new[:-1]]), -1)
        moved = same & (old != new)
        inside = moved & (old >= 0) & (new >= 0) & (since > window.start) & (since < window.end)
        for value in np.unique(new[inside]).tolist():
            to = inside & (new == value)
            when = np.full(len(prepared.observed.nodes), np.inf)
            np.minimum.at(when, node[to], since[to])
            left = np.full(len(when), np.inf)
            away = moved & (old == value) & (since > when[node])
            np.minimum.at(left, node[away], since[away])
            had = (new == value) & (since < when[node])  # before: it is not new to the node
            unknown = np.ones(len(when), dtype=bool)
            unknown[node[new >= 0]] = False
            when[node[had]] = np.nan
            when[unknown] = np.nan
            number = len(np.intersect1d(np.flatnonzero(np.isfinite(when)), seen))
            if number >= MIN_CHANGED:
                usual = np.bincount(old[to & np.isfinite(when[node])]).argmax()
                out.append((number, Changed(fact=fact, value=value, before=int(usual), since=when, left=left)))
    out.sort(key=lambda pair: (-pair[0], facts.names[pair[1].fact], pair[1].value))
    return [change for _, change in out[:MAX_ROLLOUTS]]


def _groups(prepared: Prepared, changes: Sequence[Changed]) -> list[list[Changed]]:
    """Changes of the same nodes at the same times are one rollout; a version leads its group."""
    names = prepared.observed.facts.names
    groups: list[list[Changed]] = []
    for change in sorted(changes, key=lambda c: "version" not in names[c.fact]):
        for group in groups:
            if _together(group[0], change):
                group.append(change)
                break
        else:
            groups.append([change])
    return groups


def _together(one: Changed, other: Changed) -> bool:
    both = np.isfinite(one.since) & np.isfinite(other.since)
    with np.errstate(invalid="ignore"):
        same = np.count_nonzero(both & (np.abs(one.since - other.since) <= SAME_TIME))
    return bool(same > ALIKE * max(len(one.nodes), len(other.nodes)))


def _spans(prepared: Prepared, change: Changed) -> Spans:
    """The states that can be compared: before the change, or after it until the value is given up."""
    states, window = prepared.design.states, prepared.window
    since = change.since[states.node]
    code = prepared.observed.facts.codes[states.row, change.fact]
    late = states.since >= since
    use = ~np.isnan(since) & (code >= 0) & (late == (code == change.value)) & (states.since < change.left[states.node])
    start, end = np.maximum(states.since, window.start), np.minimum(states.until, window.end)
    rate = states.hours.sum(axis=1) / np.maximum((end - start) / 3600, 1e-9)
    return Spans(node=states.node, since=start, until=end, rate=rate, change=since, use=use & (end > start))


def _described(prepared: Prepared, group: Sequence[Changed], spans: Spans) -> Rollout:
    lead, facts = group[0], prepared.observed.facts
    times = lead.since[lead.nodes]
    controls = np.unique(spans.node[spans.use & ~np.isfinite(spans.change)])
    crashed, expected, p = _follows_crashes(prepared, lead)
    repair = p <= REPAIR_P and crashed >= REPAIR_RATIO * expected
    return Rollout(
        facts=tuple(FactValue(fact=facts.names[c.fact], value=facts.values[c.fact][c.value]) for c in group),
        before=facts.values[lead.fact][lead.before], nodes=len(lead.nodes), controls=len(controls),
        first=float(times.min()), last=float(times.max()), crashed_before=crashed / len(lead.nodes),
        crashed_before_expected=expected / len(lead.nodes), verdict="follows_crashes" if repair else "",
        rebooted=int(with_boot(prepared.observed.boots, lead.nodes, times).sum()),
    )  # fmt: skip


def _follows_crashes(prepared: Prepared, change: Changed) -> tuple[int, float, float]:
    """How many nodes had crashed shortly before they changed, how many by chance (as nodes that had not changed at that
    time), and the p-value: changes as cases, unchanged nodes of the same moment as controls.
    """
    everything, nodes = prepared.observed.incidents, change.nodes
    order = np.lexsort((everything.time, everything.node))
    node, since = everything.node[order], everything.time[order]
    until = since + RECENT
    until[:-1] = np.where(node[1:] == node[:-1], np.minimum(until[:-1], since[1:]), until[:-1])
    when = change.since
    comparable = ~np.isnan(when[node])
    node, since, until = node[comparable], since[comparable], np.minimum(until, np.inf)[comparable]
    until = np.minimum(until, when[node] + 1e-3)
    times = np.sort(when[nodes])
    seen = np.unique(prepared.design.states.node)
    alive = np.sort(when[seen][~np.isnan(when[seen])])
    everyone = len(alive) - np.searchsorted(alive, times, side="left")
    kept = until > since
    started = np.searchsorted(np.sort(since[kept]), times, side="left")
    ended = np.searchsorted(np.sort(until[kept]), times, side="right")
    chance = np.clip((started - ended) / np.maximum(everyone, 1), 0.0, 1.0)
    own = np.full(len(when), -np.inf)
    before = kept & (since < when[node])
    np.maximum.at(own, node[before], since[before])
    crashed = int(np.count_nonzero(when[nodes] - own[nodes] <= RECENT))
    expected = float(chance.sum())
    share = expected / len(nodes)
    return crashed, expected, float(stats.binom.sf(crashed - 1, len(nodes), share))


def with_boot(boots: Boots, node: Ints, time: Floats) -> Bools:
    """Whether each node booted within an hour before or after a time."""
    sorted_ = np.sort(keys(boots.node, boots.time))
    before, after = (np.searchsorted(sorted_, keys(node, time + sign * SAME_TIME)) for sign in (-1, 1))
    return np.asarray(after > before)


def came_with_boot(observed: Observed, fact: FactValue) -> bool:
    """Whether half of the nodes with a value took it on when they booted: what became rarer may be the boot's doing."""
    facts = observed.facts
    if fact.fact not in facts.names or not len(observed.boots.node):
        return False
    index, start = facts.names.index(fact.fact), fact.value.removesuffix("*")
    is_it = np.array(
        [text == fact.value or (start != fact.value and text.startswith(start)) for text in facts.values[index]]
    )
    node, has = facts.node, np.append(is_it, False)[facts.codes[:, index]]
    took = np.flatnonzero(has[1:] & ~has[:-1] & (node[1:] == node[:-1])) + 1
    booted = took[with_boot(observed.boots, node[took], facts.since[took])]
    return len(np.unique(node[booted])) >= len(np.unique(node[has])) / 2


def _has_controls(spans: Spans) -> bool:
    """Whether unchanged nodes were watched for a day after nodes had changed, or some never change."""
    never = len(np.unique(spans.node[spans.use & ~np.isfinite(spans.change)]))
    change = spans.change[spans.use & np.isfinite(spans.change)]
    return never >= MIN_CHANGED or (len(change) > 0 and float(change.max() - np.median(change)) >= DAY)


def _tests(prepared: Prepared, change: Changed, spans: Spans, rollout: Rollout) -> list[_Tested]:
    """What can be tested of a rollout, one effect for each signature."""
    out = []
    everyone: dict[str, _Everyone] = {}
    for signature in sorted(prepared.units):
        events = prepared.units[signature].incidents
        state, stratum = prepared.units[signature].state, prepared.strata(signature, level=ALL_ALIKE)
        inside = spans.use[state] & (stratum[state] >= 0)
        if inside.sum() < MIN_CRASHES:
            continue
        node, time, at = events.node[inside], events.time[inside], stratum[state[inside]]
        vendor = prepared.vendor(signature)
        if vendor not in everyone:
            everyone[vendor] = _Everyone(spans.in_strata(stratum))
        own = everyone[vendor]
        changed = time >= change.since[node]
        share = own.share_changed(node, time, at, time)
        is_mixed = (share > 0) & (share < 1)
        if is_mixed.sum() < MIN_CRASHES:
            continue
        earlier = ~changed & (at >= 0)
        before = own.share_of_later(node, time, at[earlier], time[earlier])
        informative = (before > 0) & (before < 1)
        later = np.isfinite(change.since[node[earlier]])
        odds_before = before[informative] / (1 - before[informative])
        crashes_before, expected_before = int(later[informative].sum()), float(before[informative].sum())
        p_before = _two_sided(crashes_before, before[informative])
        baseline = float((crashes_before + PRIOR) / (expected_before + PRIOR)) if informative.any() else 1.0
        odds = share[is_mixed] / (1 - share[is_mixed])
        observed = int(changed[is_mixed].sum())
        adjusted = baseline * odds / (1 + baseline * odds)
        p = max(_two_sided(observed, share[is_mixed]), _two_sided(observed, adjusted)) if p_before > BEFORE_P else 1.0
        out.append(
            _Tested(
                rollout=rollout, signature=signature, observed=observed, expected=float(adjusted.sum()),
                crashes=int(is_mixed.sum()), crashes_before=int(later.sum()), observed_before=crashes_before, p_value=p,
                odds=baseline * odds, odds_before=odds_before,
            )
        )  # fmt: skip
    return out


class _Everyone:
    """Who is at risk on each side of a rollout, worked out once for all signatures of a vendor. What changes from one
    signature to the next is small: the nodes that crashed leave the comparison.
    """

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._split = tuple(curve(side) for side in spans.split(0.0))
        self._before = tuple(curve(side) for side in spans.later_and_never())

    def share_changed(self, crashed: Ints, crash: Floats, stratum: Ints, time: Floats) -> Floats:
        """Of those at risk in each stratum at each time, the share that has changed."""
        return self._share(self._split, self._spans.after_crashes(crashed, crash).split(0.0), stratum, time)

    def share_of_later(self, crashed: Ints, crash: Floats, stratum: Ints, time: Floats) -> Floats:
        """Of those not changed at each time, the share that changes later."""
        return self._share(self._before, self._spans.after_crashes(crashed, crash).later_and_never(), stratum, time)

    @staticmethod
    def _share(everyone: Sequence[Curve], gone: Sequence[Spans], stratum: Ints, time: Floats) -> Floats:
        one, other = (
            np.maximum(all_.at(stratum, time) - at_risk(left, stratum, time), 0.0)
            for all_, left in zip(everyone, gone, strict=True)
        )
        one, other = (np.where(side > NOBODY, side, 0.0) for side in (one, other))
        return np.asarray(np.divide(one, one + other, out=np.zeros(len(time)), where=one + other > 1e-9))


def _two_sided(observed: int, share: Floats) -> float:
    if not len(share):
        return 1.0
    mean = float(share.mean())
    tails = stats.binom.sf(observed - 1, len(share), mean), stats.binom.cdf(observed, len(share), mean)
    return min(2 * float(min(tails)), 1.0)


def _effect(prepared: Prepared, spans: Spans, tested: _Tested, q: float) -> RolloutEffect | None:
    """The effect with its ratio and onset; None where it began before the change."""
    units = prepared.units[tested.signature]
    stratum = prepared.strata(tested.signature, level=ALL_ALIKE)
    inside = spans.use[units.state] & (stratum[units.state] >= 0)
    node, time, at = units.incidents.node[inside], units.incidents.time[inside], stratum[units.state[inside]]
    change = spans.change[units.state[inside]]
    ratio = rate_ratio(float(tested.observed), np.ones(len(tested.odds)), tested.odds)
    best, low, high = onset(spans.within(stratum, node, time), at, time, change, more=ratio.value > 1)
    if high < -EARLY_HOURS:
        return None
    return RolloutEffect(
        rollout=tested.rollout, signature=tested.signature, observed=tested.observed, expected=tested.expected,
        crashes=tested.crashes, crashes_before=tested.crashes_before, p_value=tested.p_value, q_value=min(q, 1.0),
        ratio=ratio,
        ratio_before=rate_ratio(float(tested.observed_before), np.ones(len(tested.odds_before)), tested.odds_before),
        onset=best, onset_low=low, onset_high=high, column=spans.use & (spans.since >= spans.change), use=spans.use,
    )  # fmt: skip


EXAMPLES = 5
SHARP_HOURS = 24.0  # an interval of the onset that is wider is worth a warning
DIFFERENT = 1.5


def rollout_findings(prepared: Prepared, effects: Sequence[RolloutEffect]) -> list[Finding]:
    """One finding for each effect."""
    return [_finding(prepared, effect) for effect in effects]


def _finding(prepared: Prepared, effect: RolloutEffect) -> Finding:
    direction: Direction = "more" if effect.ratio.value > 1 else "fewer"
    units = prepared.units[effect.signature]
    strata = np.where(effect.use, prepared.strata(effect.signature, level=ALL_ALIKE), -1)
    compared = effect.use[units.state]
    hit = compared & (effect.column[units.state] if direction == "more" else ~effect.column[units.state])
    incidents = units.incidents.take(hit)
    rollout = effect.rollout
    workload = workload_shares(
        prepared, units, direction, strata=strata, column=effect.column, fact=rollout.facts[0].fact
    )
    against = too_few_sources(prepared, incidents)
    against += [f"the nodes differed before: {effect.ratio_before.value:.2g} times"] * (
        effect.ratio_before.low > 1 or effect.ratio_before.high < 1
    )
    if rollout.rebooted >= ALIKE * rollout.nodes:
        against.append(f"{rollout.rebooted:,} of the {rollout.nodes:,} changed nodes rebooted at the change")
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
    changed, days, most = trial
    return (
        f"undo it on {changed:,} of the {nodes:,} nodes; {power.at_most(most)} in "
        f"{counted(days, 'day')}, it is the cause (by chance in one of 20 cases). Until then, hold the rollout"
    )
