"""What /metrics of the fleet service shows: names and labels, and the numbers of one standing as families.

Labels come from records of nodes: each family has so many series at most, the strongest, and those beyond share one
series whose labels are `other`.
"""

import math
from collections.abc import Iterable

from exporter.fleet.pull.status import PULL_METRICS, PullCounts, pull_values
from exporter.fleet.results.labels import conditions
from exporter.fleet.results.to_json import shown
from exporter.fleet.service.refresh import REASONS, FleetStatus
from exporter.fleet.statistics.findings import Correlation, Finding
from exporter.metrics.counters import OTHER, Labels, Metric
from exporter.metrics.exposition import Family, MetricsSnapshot

LONGEST_LABEL = 128  # characters; no id, version or host name is longer
STATUSES = ("candidate", "confirmed")
KINDS = ("gpu", "node")
_FINDING = ("signature", "fact", "value", "status")
_BAD_NODE = ("kind", "name", "node")
_EXPOSED = ("because", "signature", "status")

METRICS: dict[str, Metric] = {
    "gpufault_fleet_findings": Metric(
        "gauge", ("status",), "Findings: facts under which a crash is more, or less, frequent."
    ),
    "gpufault_fleet_finding_rate_ratio": Metric(
        "gauge", _FINDING, "How many times as frequent the signature is with the fact as without it."
    ),
    "gpufault_fleet_finding_rate_ratio_low": Metric("gauge", _FINDING, "Lower end of its 95% interval."),
    "gpufault_fleet_finding_rate_ratio_high": Metric(
        "gauge", _FINDING, "Upper end of its 95% interval; +Inf where nobody crashed without the fact."
    ),
    "gpufault_fleet_finding_q_value": Metric("gauge", _FINDING, "The false-discovery rate at which it would just pass."),
    "gpufault_fleet_signatures_without_enough_data": Metric(
        "gauge", (), "Signatures with too few crashes to tell whether a fact explains them."
    ),
    "gpufault_fleet_lemons": Metric("gauge", ("kind",), "Nodes, and GPUs, that crash far more often than their like."),
    "gpufault_fleet_lemon_incidents": Metric(
        "gauge", _BAD_NODE, "Crashes of an unusually bad node or GPU in the window; `name` is the node or the GPU's serial."
    ),
    "gpufault_fleet_lemon_probability": Metric(
        "gauge", _BAD_NODE, "Probability that its crash rate is more than five times the usual one."
    ),
    "gpufault_fleet_exposed_nodes": Metric(
        "gauge", _EXPOSED,
        "Nodes under a finding, or under a cause of the catalogue (status `catalogue`), that have not had this crash.",
    ),
    "gpufault_fleet_exposed_expected_incidents": Metric(
        "gauge", _EXPOSED, "Crashes to be expected of these nodes within seven days."
    ),
    "gpufault_fleet_nodes": Metric("gauge", (), "Nodes with facts and exposure in the window."),
    "gpufault_fleet_incidents": Metric("gauge", (), "Root incidents in the window."),
    "gpufault_fleet_exposure_hours": Metric("gauge", ("unit",), "Exposure in the window, and what it is counted in."),
    "gpufault_fleet_lost_gpu_hours": Metric(
        "gauge", (), "GPU-hours of jobs that crashed in the window: their run times, else `lost.assumed_hours` for each GPU."
    ),
    "gpufault_fleet_window_start_timestamp_seconds": Metric("gauge", (), "Where the window begins."),
    "gpufault_fleet_window_end_timestamp_seconds": Metric(
        "gauge", (),
        "Where the window ends: with journals, at the newest record. Old while results are young: no journals arrive.",
    ),
    "gpufault_fleet_complete": Metric(
        "gauge", (), "1 if the last result is complete; at 0, an empty result does not mean that all is well."
    ),
    "gpufault_fleet_gaps": Metric(
        "gauge", ("kind",), "What was missing for the last result, or less exact: how much of each kind."
    ),
    "gpufault_fleet_result_age_seconds": Metric(
        "gauge", (), "Since the last refresh that gave a result. Absent until the first."
    ),
    "gpufault_fleet_complete_result_age_seconds": Metric(
        "gauge", (), "Since the last result for which nothing was missing. Absent until the first."
    ),
    "gpufault_fleet_refreshes_total": Metric("counter", (), "Refreshes that ended, well or not."),
    "gpufault_fleet_refresh_failures_total": Metric(
        "counter", ("reason",),
        "Refreshes without a result: `source` (could not be read), `configuration`, `timeout`, `killed` (by a signal, as "
        "when memory is short), `internal`.",
    ),
    "gpufault_fleet_refresh_duration_seconds": Metric("gauge", (), "How long the last refresh that ended took."),
    "gpufault_fleet_refresh_running": Metric("gauge", (), "1 while a refresh runs."),
    "gpufault_fleet_last_refresh_successful": Metric("gauge", (), "1 if the last refresh that ended gave a result."),
    "gpufault_fleet_config_last_reload_successful": Metric("gauge", (), "1 if the configuration file is applied."),
    "gpufault_fleet_config_last_reload_success_timestamp_seconds": Metric("gauge", (), "Unix time of the last success."),
    "gpufault_fleet_web_config_last_reload_successful": Metric("gauge", (), "1 if --web.config.file is applied."),
    "gpufault_fleet_web_config_last_reload_success_timestamp_seconds": Metric("gauge", (), "Unix time of the last success."),
    **PULL_METRICS,
    "gpufault_fleet_build_info": Metric("gauge", ("version", "python"), "1."),
}  # fmt: skip

Values = dict[str, dict[Labels, float]]


def snapshot_of(
    now: float, fleet_status: FleetStatus, *, label_values: int, build: tuple[str, str], pull: PullCounts | None = None
) -> MetricsSnapshot:  # fmt: skip
    """All families, in the order that METRICS declares them. label_values: series of one family that carry a name."""
    values: Values = {"gpufault_fleet_build_info": {build: 1.0}}
    if pull is not None:
        values |= pull_values(pull)
    _of_refreshes(values, fleet_status, now)
    if fleet_status.result is not None:
        _of_result(values, fleet_status.result, label_values)
    if fleet_status.lost is not None:
        values["gpufault_fleet_lost_gpu_hours"] = {(): fleet_status.lost.hours}
    return MetricsSnapshot(
        tuple(
            Family(name, metric.kind, metric.help, metric.labels, values[name])
            for name, metric in METRICS.items()
            if name in values
        )
    )


def _of_refreshes(values: Values, fleet_status: FleetStatus, now: float) -> None:
    def put(name: str, value: float) -> None:
        values[f"gpufault_fleet_{name}"] = {(): value}

    put("refreshes_total", fleet_status.refreshes)
    put("refresh_running", float(fleet_status.running))
    put("config_last_reload_successful", float(fleet_status.reload_ok))
    put("config_last_reload_success_timestamp_seconds", fleet_status.reload_time)
    values["gpufault_fleet_refresh_failures_total"] = {
        (why,): float(fleet_status.failures.get(why, 0)) for why in REASONS
    }
    if fleet_status.web_config_ok is not None:
        put("web_config_last_reload_successful", float(fleet_status.web_config_ok))
        put("web_config_last_reload_success_timestamp_seconds", fleet_status.web_config_time)
    if fleet_status.refreshes:
        put("refresh_duration_seconds", fleet_status.duration)
        put("last_refresh_successful", float(fleet_status.failure is None))
    if fleet_status.result is not None:
        put("result_age_seconds", max(now - fleet_status.result_time, 0.0))
    if fleet_status.complete_time is not None:
        put("complete_result_age_seconds", max(now - fleet_status.complete_time, 0.0))


def _of_result(values: Values, result: Correlation, most: int) -> None:
    def put(name: str, value: float) -> None:
        values[f"gpufault_fleet_{name}"] = {(): value}

    def rows(name: str, series: Iterable[tuple[Labels, float]]) -> None:
        values[f"gpufault_fleet_{name}"] = bounded(series, most)

    findings, bad_nodes, exposed = result.findings, result.outlier_nodes, result.exposed
    values["gpufault_fleet_findings"] = {
        (status,): float(sum(f.status == status for f in findings)) for status in STATUSES
    }
    rows("finding_rate_ratio", ((finding_labels(f), shown(f.ratio.value)) for f in findings))
    rows("finding_rate_ratio_low", ((finding_labels(f), shown(f.ratio.low)) for f in findings))
    rows("finding_rate_ratio_high", ((finding_labels(f), shown(f.ratio.high)) for f in findings))
    rows("finding_q_value", ((finding_labels(f), f.q_value) for f in findings))
    put("signatures_without_enough_data", len(result.not_enough_data))
    values["gpufault_fleet_lemons"] = {(kind,): float(sum(bad.kind == kind for bad in bad_nodes)) for kind in KINDS}
    rows("lemon_incidents", (((bad.kind, bad.name, bad.node), bad.incidents) for bad in bad_nodes))
    rows("lemon_probability", (((bad.kind, bad.name, bad.node), shown(bad.probability)) for bad in bad_nodes))
    rows("exposed_nodes", (((risk.because, risk.signature, risk.status), risk.count) for risk in exposed))
    rows(
        "exposed_expected_incidents",
        (((risk.because, risk.signature, risk.status), shown(risk.expected_7d)) for risk in exposed),
    )
    put("nodes", result.nodes)
    put("incidents", result.incidents)
    values["gpufault_fleet_exposure_hours"] = {(result.exposure,): shown(result.exposure_hours)}
    put("window_start_timestamp_seconds", result.window.start)
    put("window_end_timestamp_seconds", result.window.end)
    put("complete", float(result.complete))
    gaps: dict[Labels, float] = {}
    for gap in result.gaps:
        gaps[gap.kind,] = gaps.get((gap.kind,), 0.0) + gap.count
    values["gpufault_fleet_gaps"] = gaps


def finding_labels(finding: Finding) -> Labels:
    """signature, fact, value, status; of a pair of facts, both with ` and ` between."""
    facts = conditions(finding)
    fact, value = " and ".join(one.fact for one in facts), " and ".join(one.value for one in facts)
    return finding.signature, fact, value, finding.status


def bounded(rows: Iterable[tuple[Labels, float]], most: int) -> dict[Labels, float]:
    """The first `most` series as they are, the rest in one series of the largest value, labelled `other`.

    Of two rows with the same labels the first counts, as it is the stronger one.
    """
    out: dict[Labels, float] = {}
    for labels, value in rows:
        kept = tuple(label if len(label) <= LONGEST_LABEL else OTHER for label in labels)
        if kept in out:
            continue
        if len(out) < most:
            out[kept] = value
        else:
            rest = (OTHER,) * len(labels)
            out[rest] = max(value, out.get(rest, -math.inf))
    return out
