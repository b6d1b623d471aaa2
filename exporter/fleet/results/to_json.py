"""A correlation as a JSON object. The only place that knows its field names."""

import math
from collections.abc import Mapping
from typing import Any

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.observations import Window
from exporter.fleet.statistics.findings import (
    Beginning,
    Confirmation,
    Correlation,
    Detectable,
    FactValue,
    Finding,
    IncidentRates,
    NotEnough,
    Reliability,
    Rollout,
    RolloutEffect,
    SignaturePart,
    WorkloadShare,
)
from exporter.fleet.statistics.ratio import Ratio


def to_json(correlation: Correlation, lost: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The result as a JSON object. Infinite numbers (a ratio if no other node crashed) are null.

    lost: the GPU-hours of crashed jobs.
    """
    c = correlation
    return {
        "window": {**window_json(c.window), **_fields(c, "exposure", "exposure_hours")},
        **_fields(c, "nodes", "incidents", "origins", "tests", "complete"),
        "gaps": [{"kind": gap.kind, "count": gap.count, "what": gap.message} for gap in c.gaps],
        "findings": [_finding(finding) for finding in c.findings],
        "locations": [_finding(finding) for finding in c.locations],
        "not_enough_data": [_not_enough(signature) for signature in c.not_enough_data],
        "detectable": _detectable(c.detectable),
        "lemons": [
            _fields(bad, "kind", "name", "node", "incidents", "jobs", "days", "expected", "probability", "signatures",
                    "within_days", "gpu")
            for bad in c.outlier_nodes
        ],
        "exposed": [
            _fields(at_risk, "because", "signature", "status", "count", "expected_7d", "nodes") for at_risk in c.exposed
        ],
        "rollouts": [{**_rollout(rollout), "findings": list(c.about(rollout))} for rollout in c.rollouts],
        "beginnings": [_beginning(beginning) for beginning in c.beginnings],
        "reliability": [_reliability(model) for model in c.reliability],
        "lost_gpu_hours": lost,
    }  # fmt: skip


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "kind": "rollout" if f.rollout else "fact",
        "signature": f.signature,
        **({"root_cause": f.signature} if f.level == "root_cause" else {}),
        "level": f.level,
        "signatures": [_part(part) for part in f.signatures],
        **_fields(f, "direction", "facts", "together_with", "observed", "expected", "crashes", "counts"),
        **_fields(f, "nodes_with", "nodes_without"),
        **_ratio("rate_ratio", f.ratio),
        **_fields(f, "p_value", "q_value", "score", "status"),
        "workload": [_workload(share) for share in f.workload],
        **_fields(f, "adjusted_for", "next_step"),
        "trend": [_fields(part, "low", "high", "observed", "expected") for part in f.trend],
        "incident_rates": _rates(f.rates) if f.rates else None,
        "rollout": _effect(f.rollout) if f.rollout else None,
        "first_seen": window_json(f.first_seen) if f.first_seen else None,
        "confirmation": _confirmation(f.confirmation) if f.confirmation else None,
        **_fields(f, "counter_evidence", "examples", "tie_breakers"),
    }


def _part(part: SignaturePart) -> dict[str, Any]:
    return {**_fields(part, "signature", "observed", "expected", "crashes"), **_ratio("rate_ratio", part.ratio)}


def _workload(share: WorkloadShare) -> dict[str, Any]:
    ratio = share.ratio
    return {
        **_fields(share, "kind", "names", "share"),
        "rate_ratio_without": None if ratio is None else _number(ratio.value),
        "rate_ratio_without_low": None if ratio is None else _number(ratio.low),
        "rate_ratio_without_high": None if ratio is None else _number(ratio.high),
        "p_value_without": share.p_value,
        **_fields(share, "holds", "elsewhere"),
    }


def _confirmation(confirmation: Confirmation) -> dict[str, Any]:
    return {
        "window": window_json(confirmation.window),
        **_fields(confirmation, "observed", "expected", "p_value"),
        **_ratio("rate_ratio", confirmation.ratio),
    }


def _rates(rates: IncidentRates) -> dict[str, Any]:
    return {
        **_fields(rates, "incidents_with", "incidents_without"),
        "per_1000_hours_with": _number(rates.rate_with),
        "per_1000_hours_without": _number(rates.rate_without),
        **_ratio("rate_ratio", rates.ratio),
    }


def _not_enough(signature: NotEnough) -> dict[str, Any]:
    return {
        **_fields(signature, "signature", "crashes", "needed", "lead", "observed", "expected", "p_value"),
        "values_compared": signature.values,
        "what": signature.message,
    }


def _detectable(detectable: Detectable) -> dict[str, Any]:
    return {
        **_fields(detectable, "crashes", "p_value"),
        "rate_ratios": [{"share": share, "rate_ratio": _number(ratio)} for share, ratio in detectable.ratios],
    }


def _rollout(rollout: Rollout) -> dict[str, Any]:
    return {
        **_fields(rollout, "facts", "before", "nodes", "controls"),
        "first": rfc3339(rollout.first),
        "last": rfc3339(rollout.last),
        **_fields(rollout, "crashed_before", "crashed_before_expected", "rebooted"),
        "verdict": rollout.verdict or "tested",
    }


def _effect(effect: RolloutEffect) -> dict[str, Any]:
    return {
        **_rollout(effect.rollout),
        "onset_hours": _number(effect.onset),
        "onset_hours_low": _number(effect.onset_low),
        "onset_hours_high": _number(effect.onset_high),
        **_ratio("rate_ratio_before", effect.ratio_before),
    }


def _beginning(beginning: Beginning) -> dict[str, Any]:
    changes = (
        "facts", "before", "affected", "affected_changed", "others", "others_changed", "hours_before", "p_value",
    )  # fmt: skip
    return {
        "signature": beginning.signature,
        "first": rfc3339(beginning.first),
        "last": rfc3339(beginning.last),
        **_fields(beginning, "crashes_before", "crashes_after"),
        **_ratio("rate_ratio", beginning.ratio),
        "p_value": beginning.p_value,
        "changes": [_fields(change, *changes) for change in beginning.changes],
    }


def _reliability(model: Reliability) -> dict[str, Any]:
    return {
        "gpu_model": model.gpu_model,
        "gpu_hours": _number(model.hours),
        "incidents": model.incidents,
        "mtbf_gpu_hours": _number(model.mtbf),
        **_fields(model, "mtbf_low", "mtbf_high"),
    }


def _fields(value: object, *names: str) -> dict[str, Any]:
    """Fields whose JSON names are their own. Numbers are rounded, but for p-values."""
    return {name: _json(getattr(value, name), is_exact=name.endswith("_value")) for name in names}


def _json(value: Any, *, is_exact: bool) -> Any:
    if isinstance(value, FactValue):
        return {"fact": value.fact, "value": value.value}
    if isinstance(value, tuple):
        return [_json(one, is_exact=is_exact) for one in value]
    return value if is_exact or not isinstance(value, float) else _number(value)


def _ratio(name: str, ratio: Ratio) -> dict[str, Any]:
    return {name: _number(ratio.value), f"{name}_low": _number(ratio.low), f"{name}_high": _number(ratio.high)}


def window_json(window: Window) -> dict[str, Any]:
    return {"start": rfc3339(window.start), "end": rfc3339(window.end)}


def _number(value: float) -> float | None:
    return shown(value) if math.isfinite(value) else None


def shown(value: float) -> float:
    """A number as JSON and metrics have it, so that they agree: with four decimals."""
    return round(value, 4)
