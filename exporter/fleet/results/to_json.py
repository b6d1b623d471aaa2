"""A correlation as a JSON object. The only place that knows its field names."""

from __future__ import annotations

import math
from typing import Any

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.observations import Window
from exporter.fleet.statistics.findings import (
    LOST_HOURS,
    Beginning,
    Correlation,
    Detectable,
    FactValue,
    Finding,
    IncidentRates,
    NodesAtRisk,
    NotEnough,
    OutlierNode,
    Reliability,
    Rollout,
    RolloutEffect,
)


def to_json(found: Correlation) -> dict[str, Any]:
    """The result as a JSON object. Infinite numbers (a ratio if no other node crashed) are null."""
    return {
        "window": {
            **_window(found.window),
            "exposure": found.exposure,
            "exposure_hours": _number(found.exposure_hours),
        },
        "nodes": found.nodes,
        "incidents": found.incidents,
        "origins": found.origins,
        "tests": found.tests,
        "complete": found.complete,
        "gaps": [{"kind": each.kind, "count": each.count, "what": each.what} for each in found.gaps],
        "findings": [_finding(each) for each in found.findings],
        "locations": [_finding(each) for each in found.locations],
        "not_enough_data": [_not_enough(each) for each in found.not_enough_data],
        "detectable": _detectable(found.detectable),
        "lemons": [_outlier_node(each) for each in found.outlier_nodes],
        "exposed": [_exposed(each) for each in found.exposed],
        "rollouts": [{**_rollout(each), "findings": list(found.about(each))} for each in found.rollouts],
        "beginnings": [_beginning(each) for each in found.beginnings],
        "changes": [_change(each, each.rollout) for each in found.findings if each.rollout],
        "reliability": [_reliability(each) for each in found.reliability],
        "lost_gpu_hours": None
        if found.lost_gpu_hours is None
        else {"hours": _number(found.lost_gpu_hours), "assumed_hours_per_gpu_and_crash": LOST_HOURS},
    }


def _finding(each: Finding) -> dict[str, Any]:
    return {
        "kind": "rollout" if each.rollout else "fact",
        "signature": each.signature,
        **({"root_cause": each.signature} if each.level == "root_cause" else {}),
        "level": each.level,
        "signatures": [
            {
                "signature": part.signature,
                "observed": part.observed,
                "expected": _number(part.expected),
                "crashes": part.crashes,
                "rate_ratio": _number(part.ratio.value),
                "rate_ratio_low": _number(part.ratio.low),
                "rate_ratio_high": _number(part.ratio.high),
            }
            for part in each.signatures
        ],
        "direction": each.direction,
        "facts": [_fact(one) for one in each.facts],
        "together_with": _fact(each.together_with) if each.together_with else None,
        "observed": each.observed,
        "expected": _number(each.expected),
        "crashes": each.crashes,
        "nodes_with": each.nodes_with,
        "nodes_without": each.nodes_without,
        "rate_ratio": _number(each.ratio.value),
        "rate_ratio_low": _number(each.ratio.low),
        "rate_ratio_high": _number(each.ratio.high),
        "p_value": each.p_value,
        "q_value": each.q_value,
        "score": _number(each.score),
        "status": each.status,
        "workload": [
            {
                "kind": one.kind,
                "names": list(one.names),
                "share": _number(one.share),
                "rate_ratio_without": None if one.ratio is None else _number(one.ratio.value),
                "rate_ratio_without_low": None if one.ratio is None else _number(one.ratio.low),
                "rate_ratio_without_high": None if one.ratio is None else _number(one.ratio.high),
                "p_value_without": one.p_value,
                "holds": one.holds,
            }
            for one in each.workload
        ],
        "adjusted_for": list(each.adjusted_for),
        "next_step": each.next_step,
        "trend": [
            {
                "low": _number(part.low),
                "high": _number(part.high),
                "observed": part.observed,
                "expected": _number(part.expected),
            }
            for part in each.trend
        ],
        "incident_rates": _rates(each.rates) if each.rates else None,
        "rollout": _effect(each.rollout) if each.rollout else None,
        "first_seen": _window(each.first_seen) if each.first_seen else None,
        "confirmation": {
            "window": _window(each.confirmation.window),
            "observed": each.confirmation.observed,
            "expected": _number(each.confirmation.expected),
            "p_value": each.confirmation.p_value,
            "rate_ratio": _number(each.confirmation.ratio.value),
            "rate_ratio_low": _number(each.confirmation.ratio.low),
            "rate_ratio_high": _number(each.confirmation.ratio.high),
        }
        if each.confirmation
        else None,
        "counter_evidence": list(each.counter_evidence),
        "examples": list(each.examples),
        "tie_breakers": list(each.tie_breakers),
    }


def _rates(each: IncidentRates) -> dict[str, Any]:
    return {
        "incidents_with": each.incidents_with,
        "incidents_without": each.incidents_without,
        "per_1000_hours_with": _number(each.rate_with),
        "per_1000_hours_without": _number(each.rate_without),
        "rate_ratio": _number(each.ratio.value),
        "rate_ratio_low": _number(each.ratio.low),
        "rate_ratio_high": _number(each.ratio.high),
    }


def _not_enough(each: NotEnough) -> dict[str, Any]:
    return {
        "signature": each.signature,
        "crashes": each.crashes,
        "needed": each.needed,
        "lead": _fact(each.lead) if each.lead else None,
        "observed": each.observed,
        "expected": _number(each.expected),
        "p_value": each.p_value,
        "values_compared": each.values,
        "what": each.what,
    }


def _detectable(each: Detectable) -> dict[str, Any]:
    return {
        "crashes": each.crashes,
        "p_value": each.p_value,
        "rate_ratios": [{"share": share, "rate_ratio": _number(ratio)} for share, ratio in each.ratios],
    }


def _outlier_node(each: OutlierNode) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "name": each.name,
        "node": each.node,
        "incidents": each.incidents,
        "jobs": each.jobs,
        "days": each.days,
        "expected": _number(each.expected),
        "probability": _number(each.probability),
        "signatures": list(each.signatures),
    }


def _exposed(each: NodesAtRisk) -> dict[str, Any]:
    return {
        "because": each.because,
        "signature": each.signature,
        "status": each.status,
        "count": each.count,
        "expected_7d": _number(each.expected_7d),
        "nodes": list(each.nodes),
    }


def _rollout(each: Rollout) -> dict[str, Any]:
    return {
        "facts": [_fact(one) for one in each.facts],
        "before": each.before,
        "nodes": each.nodes,
        "controls": each.controls,
        "first": rfc3339(each.first),
        "last": rfc3339(each.last),
        "crashed_before": _number(each.crashed_before),
        "crashed_before_expected": _number(each.crashed_before_expected),
        "verdict": each.verdict or "tested",
    }


def _effect(each: RolloutEffect) -> dict[str, Any]:
    return {
        **_rollout(each.rollout),
        "onset_hours": _number(each.onset),
        "onset_hours_low": _number(each.onset_low),
        "onset_hours_high": _number(each.onset_high),
        "rate_ratio_before": _number(each.ratio_before.value),
        "rate_ratio_before_low": _number(each.ratio_before.low),
        "rate_ratio_before_high": _number(each.ratio_before.high),
    }


def _beginning(each: Beginning) -> dict[str, Any]:
    return {
        "signature": each.signature,
        "first": rfc3339(each.first),
        "last": rfc3339(each.last),
        "crashes_before": each.crashes_before,
        "crashes_after": each.crashes_after,
        "rate_ratio": _number(each.ratio.value),
        "rate_ratio_low": _number(each.ratio.low),
        "rate_ratio_high": _number(each.ratio.high),
        "p_value": each.p_value,
        "changes": [
            {
                "facts": [_fact(one) for one in change.facts],
                "before": change.before,
                "affected": change.affected,
                "affected_changed": change.affected_changed,
                "others": change.others,
                "others_changed": change.others_changed,
                "hours_before": _number(change.hours_before),
                "p_value": change.p_value,
            }
            for change in each.changes
        ],
    }


def _change(each: Finding, effect: RolloutEffect) -> dict[str, Any]:
    """A rollout as earlier versions wrote it."""
    return {
        "fact": each.facts[0].fact,
        "before": effect.rollout.before,
        "after": each.facts[0].value,
        "signature": each.signature,
        "nodes": effect.rollout.nodes,
        "crashes_before": effect.crashes_before,
        "crashes_after": each.observed,
        "expected_after": _number(each.expected),
        "rate_ratio": _number(each.ratio.value),
        "rate_ratio_low": _number(each.ratio.low),
        "rate_ratio_high": _number(each.ratio.high),
        "p_value": each.p_value,
    }


def _reliability(each: Reliability) -> dict[str, Any]:
    return {
        "gpu_model": each.gpu_model,
        "gpu_hours": _number(each.hours),
        "incidents": each.incidents,
        "mtbf_gpu_hours": _number(each.mtbf),
        "mtbf_low": _number(each.mtbf_low),
        "mtbf_high": _number(each.mtbf_high),
    }


def _fact(one: FactValue) -> dict[str, str]:
    return {"fact": one.fact, "value": one.value}


def _window(window: Window) -> dict[str, Any]:
    return {"start": rfc3339(window.start), "end": rfc3339(window.end)}


def _number(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None
