"""The correlation of one window: observations in, findings and the rest of the result out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from exporter.core.text.phrases import counted
from exporter.fleet.observations import NOTES, UNKNOWN, Ints, Observed, Window
from exporter.fleet.statistics import power, screen
from exporter.fleet.statistics.associations import Association, is_hardware
from exporter.fleet.statistics.beginnings import beginnings
from exporter.fleet.statistics.confirm import Remembered, confirmation, later, too_few_sources
from exporter.fleet.statistics.continuous import is_threshold
from exporter.fleet.statistics.discover import discover, signature_parts
from exporter.fleet.statistics.findings import (
    Confirmation,
    Correlation,
    Detectable,
    FactValue,
    Finding,
    IncidentRates,
    WorkloadShare,
    whose,
)
from exporter.fleet.statistics.node_lists import nodes_at_risk, outlier_nodes
from exporter.fleet.statistics.power import not_enough_data
from exporter.fleet.statistics.prepare import Prepared, prepare
from exporter.fleet.statistics.rates import incident_rates, reliability, trend
from exporter.fleet.statistics.ratio import Ratio, shrunk
from exporter.fleet.statistics.rollouts import came_with_boot, rollout_findings, rollouts
from exporter.fleet.statistics.workload import IMAGE_FACT, workload_shares

EXAMPLES = 5
ORDER_QUANTILE = 0.05  # the quantile of a shrunk ratio that findings are ordered by
TIE_BREAKERS = 10
SHOWN_SHARES = (0.1, 0.25, 0.5)  # of the nodes, for which the smallest rate ratio that can be found is said
MISSING = "the fact is not known of these nodes: that may be the consequence of what makes them crash"
MOST_FEWER = 2  # findings of fewer crashes of a signature

Causes = Mapping[str, tuple[str, Sequence[int]]]  # root cause: its signature, and the nodes whose facts meet it


def correlate(
    observed: Observed, window: Window, remembered: Sequence[Remembered] = (), causes: Causes | None = None
) -> Correlation:
    """Correlate one window. `remembered` are findings of earlier ones, which this one may confirm."""
    prepared = prepare(observed, window)
    discovery = discover(prepared)
    seen, effects = rollouts(prepared)
    from_rollouts = rollout_findings(prepared, effects)
    findings = [_finding(prepared, s, association) for s, association in discovery.associations]
    findings = [f for f in findings if f.direction == "more" or not came_with_boot(prepared.observed, f.facts[0])]
    findings = [*from_rollouts, *(f for f in findings if not any(_same(f, other) for other in from_rollouts))]
    findings.sort(key=lambda f: (f.p_value, -f.score))
    findings = _with_confirmations(prepared, _one_per_trend(findings), remembered)
    findings.sort(key=lambda f: (f.direction != "more", f.status != "confirmed", -f.score, f.p_value, f.signature))
    configuration = _without_surplus(tuple(f for f in findings if f.family == "configuration"))
    return Correlation(
        window=window,
        exposure=prepared.unit,
        exposure_hours=float(prepared.design.states.hours.sum()),
        nodes=prepared.design.nodes,
        incidents=len(prepared.incidents.node),
        origins=len(prepared.origins.node),
        tests=discovery.tests,
        complete=all(gap.kind in NOTES for gap in (*observed.gaps, *prepared.gaps)),
        gaps=(*observed.gaps, *prepared.gaps),
        findings=configuration,
        locations=tuple(f for f in findings if f.family == "location"),
        not_enough_data=not_enough_data(prepared, discovery),
        detectable=_detectable(prepared, p_cut=discovery.p_cut),
        outlier_nodes=outlier_nodes(prepared),
        exposed=nodes_at_risk(prepared, configuration, causes or {}),
        reliability=reliability(prepared),
        rollouts=seen,
        beginnings=beginnings(prepared),
    )


def remember(correlation: Correlation, before: Sequence[Remembered]) -> tuple[Remembered, ...]:
    """What to keep for the next window: older findings with their confirmation, new ones as of this window.

    Each has one later window to be confirmed in. What that does not confirm is forgotten, and begins anew where it is
    found again: a service that looks each hour would else ask until chance says yes.
    """
    kept = []
    for old in before:
        now = next((f for f in correlation.findings if old.same_as(f.signature, f.direction, f.facts)), None)
        confirmed = now.confirmation.window if now is not None and now.confirmation is not None else None
        if old.confirmed_in or confirmed or not later(correlation.window, old):
            watched = old.watched or (
                correlation.window.end > old.discovered_in.end and not later(correlation.window, old)
            )
            kept.append(replace(old, confirmed_in=old.confirmed_in or confirmed, watched=watched))
    new = (f for f in correlation.findings if not any(old.same_as(f.signature, f.direction, f.facts) for old in kept))
    kept += [
        Remembered(
            signature=f.signature,
            direction=f.direction,
            facts=f.facts,
            together_with=f.together_with,
            discovered_in=correlation.window,
        )
        for f in new
    ]
    return tuple(kept)


def _score(association: Association) -> float:
    """What findings are ordered by: the end of the shrunk ratio's interval that is nearer to 1."""
    counts = association.cells.counts()
    observed, expected = float(counts.observed[0]), float(counts.expected[0])
    if association.direction == "more":
        return shrunk(ORDER_QUANTILE, observed, expected)
    return 1 / max(shrunk(1 - ORDER_QUANTILE, observed, expected), 1e-9)


def _disagreement(rates: IncidentRates | None, ratio: Ratio) -> list[str]:
    """Why the intervals of crashed nodes and of all crashes have nothing in common, if so."""
    if rates is None or (rates.ratio.low <= ratio.high and ratio.low <= rates.ratio.high):
        return []
    return ["nodes that crash again and again move the rate of all crashes away from that of crashed nodes"]


def _finding(prepared: Prepared, signature: int, association: Association) -> Finding:
    design, units = prepared.design, prepared.units_of(signature)
    counts = association.cells.counts()
    with_ = association.column[units.state]
    ratio = association.cells.ratio()
    nodes_with = design.nodes_with(association.column)
    nodes_without = design.nodes_with(~association.column)
    partner = None if association.partner is None else prepared.fact(association.partner)
    chosen = design.values[association.value]
    level = int(design.level[association.value])
    strata = prepared.strata(signature, level=level)
    workload = workload_shares(
        prepared, units, association.direction, strata=strata, column=association.column, fact=chosen.fact
    )
    rates = (
        incident_rates(prepared, signature, strata=strata, column=association.column) if not units.repeated else None
    )
    against = [*_against(prepared, signature, association, units, nodes_with, ratio), *_of_one_workload(workload)]
    return Finding(
        signature=prepared.name(signature),
        direction=association.direction,
        family="location" if chosen.family == "location" else "configuration",
        facts=_facts(prepared, association),
        together_with=partner,
        observed=int(counts.observed[0]),
        expected=float(counts.expected[0]),
        crashes=int(counts.crashes[0]),
        nodes_with=len(nodes_with),
        nodes_without=len(nodes_without),
        ratio=ratio,
        p_value=association.p,
        q_value=association.q,
        status="candidate",
        counter_evidence=(*against, *_disagreement(rates, ratio)),
        examples=tuple(str(i) for i in units.incidents.id[with_][:EXAMPLES] if i),
        tie_breakers=_tie_breakers(prepared, association, units.incidents.node),
        score=_score(association),
        workload=workload,
        adjusted_for=(*prepared.adjusted_for(level), *(str(prepared.fact(v)) for v in association.within)),
        next_step=_next_step(prepared, association, len(nodes_with), int(counts.observed[0]), ratio),
        rates=rates,
        counts="crashes" if units.repeated else "nodes",
        trend=trend(prepared, units, chosen, strata=strata) if is_threshold(chosen.text) else (),
        level=prepared.level_of(signature),
        signatures=signature_parts(prepared, signature, association),
    )


def _facts(prepared: Prepared, association: Association) -> tuple[FactValue, ...]:
    """The facts of an explanation, without other values of the same fact: a node has only one of them."""
    lead = prepared.fact(association.value)
    strongest: dict[str, FactValue] = {lead.fact: lead}
    for other in map(prepared.fact, association.others):
        strongest.setdefault(other.fact, other)  # not a version and the group of versions that holds it
    return tuple(strongest.values())


def _one_per_trend(findings: Sequence[Finding]) -> list[Finding]:
    """Of a number's thresholds and values under which a signature is more frequent, the first threshold if there is one."""
    trends = {(f.signature, f.facts[0].fact): f for f in reversed(findings) if is_threshold(f.facts[0].value)}
    return [f for f in findings if trends.get((f.signature, f.facts[0].fact), f) is f]


def _without_surplus(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Of the findings of fewer crashes only the first ones of each signature: the rest mostly says the same again."""
    seen: Counter[str] = Counter()
    out = []
    for finding in findings:
        surplus = finding.direction == "fewer" and finding.rollout is None
        seen[finding.signature] += surplus
        if not surplus or seen[finding.signature] <= MOST_FEWER:
            out.append(finding)
    return tuple(out)


def _next_step(prepared: Prepared, association: Association, nodes: int, observed: int, ratio: Ratio) -> str:
    """The experiment that decides about a finding of more crashes: how many nodes to change, and for how long."""
    value = prepared.design.values[association.value]
    if association.direction == "fewer" or value.family == "location" or is_hardware(value.fact):
        return ""
    trial = power.experiment(ratio.value, observed, nodes, prepared.window.hours)
    if trial is None:
        return ""
    changed, days, most = trial
    return (
        f"change it on {changed:,} of the {nodes:,} nodes; {power.at_most(most)} in "
        f"{counted(days, 'day')}, it is the cause (by chance in one of 20 cases)"
    )


def _same(one: Finding, other: Finding) -> bool:
    """Whether two findings say the same: a rollout, and nodes with its value against those without."""
    both = set(one.facts) & set(other.facts)
    return (one.signature, one.direction) == (other.signature, other.direction) and bool(both)


def _against(
    prepared: Prepared, number: int, association: Association, units: screen.Units, nodes_with: Ints, ratio: Ratio
) -> list[str]:
    """What speaks against a finding, or for taking it with care."""
    with_ = association.column[units.state]
    rest = len(np.setdiff1d(nodes_with, prepared.crashed_nodes(number)))
    out = [MISSING] if prepared.design.values[association.value].text == UNKNOWN else []
    out += [f"{rest} of {len(nodes_with)} nodes with it have not had this crash"] if rest else []
    if outside := len(np.unique(units.incidents.node[~with_])):
        out.append(f"{counted(outside, 'node')} crashed without it")
    hit = units.incidents.take(with_ if association.direction == "more" else ~with_)
    out += too_few_sources(prepared, hit)
    cells = association.cells
    open_ = cells.open
    stratum = (np.arange(len(open_)) // (len(prepared.design.states.edges) - 1))[open_]
    observed = np.bincount(stratum, cells.observed[open_])
    expected = np.bincount(stratum, (cells.crashes * cells.having / np.maximum(cells.everyone, 1e-12))[open_])
    opposed = (observed < expected) if ratio.value > 1 else (observed > expected)
    if contrary := int((opposed & (expected >= 3)).sum()):
        out.append(f"in {contrary} of {int((expected > 0).sum())} strata it points the other way")
    return out


def _of_one_workload(workload: Sequence[WorkloadShare]) -> list[str]:
    """What a finding does not hold without, as sentences."""
    return [
        f"it does not hold {'within container images' if share.kind == IMAGE_FACT else f'without {whose(share.kind)}'}"
        + (
            f"; but these run elsewhere without this crash: on {counted(share.elsewhere, 'node')} they crashed in other ways"
        )
        * bool(share.elsewhere)
        for share in workload
        if not share.holds
    ]


def _tie_breakers(prepared: Prepared, association: Association, crashed: Ints) -> tuple[str, ...]:
    """Nodes with only one of two indistinguishable facts: their crashes will decide. Without such nodes, nodes with
    both that have not crashed: changing one fact on some of them is the experiment.
    """
    if not association.others:
        return ()
    design = prepared.design
    lead = design.column(association.value)
    apart = np.unique(
        np.concatenate(
            [np.zeros(0, dtype=np.int64), *(design.nodes_with(design.column(o) ^ lead) for o in association.others)]
        )
    )
    if not len(apart):
        apart = np.setdiff1d(design.nodes_with(lead), crashed)
    hours = np.bincount(design.states.node, design.states.hours.sum(axis=1), len(prepared.observed.nodes))
    most = apart[np.lexsort((apart, -hours[apart]))][:TIE_BREAKERS]
    return tuple(prepared.observed.nodes[int(node)] for node in most)


def _with_confirmations(
    prepared: Prepared, findings: Sequence[Finding], remembered: Sequence[Remembered]
) -> list[Finding]:
    """Findings that a remembered one, now confirmed, says too; and remembered ones that only the second look shows."""
    out = list(findings)
    for old in remembered:
        again = confirmation(prepared, old)
        at = next((i for i, f in enumerate(out) if old.same_as(f.signature, f.direction, f.facts)), None)
        if again is None and old.confirmed_in is None:
            continue
        if at is not None:
            out[at] = replace(out[at], status="confirmed", first_seen=old.discovered_in, confirmation=again)
        elif again is not None:
            out.append(_remembered_finding(old, again))
    return out


def _remembered_finding(old: Remembered, again: Confirmation) -> Finding:
    return Finding(
        signature=old.signature, direction=old.direction, family="configuration", facts=old.facts,
        together_with=old.together_with, observed=again.observed, expected=again.expected, crashes=again.observed,
        nodes_with=0, nodes_without=0, ratio=again.ratio, p_value=again.p_value, q_value=again.p_value,
        status="confirmed", counter_evidence=(), examples=(), tie_breakers=(), score=again.ratio.low,
        first_seen=old.discovered_in, confirmation=again,
    )  # fmt: skip


def _detectable(prepared: Prepared, *, p_cut: float) -> Detectable:
    crashes, nodes = max((len(units) for units in prepared.units.values()), default=0), prepared.design.nodes
    ratios = ((share, power.smallest_ratio(share, crashes, nodes, p_cut=p_cut)) for share in SHOWN_SHARES)
    return Detectable(crashes=crashes, p_value=p_cut, ratios=tuple(ratios) if crashes else ())
