"""Creates the snapshot behind /metrics: the committed counters and the current gauges of the daemon's parts."""

import platform
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from exporter import __version__
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.causes import is_at_risk
from exporter.core.matching.quarantine import Quarantined
from exporter.core.model import UNKNOWN
from exporter.daemon.casebook import Casebook
from exporter.daemon.ingest import Ingest
from exporter.daemon.node_watch import NodeWatch
from exporter.metrics.counters import METRICS, Counters, Labels, node_info_labels
from exporter.metrics.exposition import Family, MetricsSnapshot
from exporter.outputs.manager import OutputState
from exporter.outputs.npd import problem_counter, problem_gauge

Values = dict[str, dict[Labels, float]]


@dataclass(slots=True)
class Gauges:
    """Results of the latest reload, probe and write operations."""

    state_up: bool = True
    commit_time: float = 0.0
    journal_up: bool = True
    reload_ok: bool = True
    reload_time: float = 0.0
    web_config_ok: bool | None = None  # None: there is no such file
    web_config_time: float = 0.0
    journal_segments_dropped: int = 0
    quarantined: tuple[Quarantined, ...] = ()

    def reasons(self) -> list[str]:
        """Reasons for not being ready that do not concern a source."""
        reasons = []
        if not self.state_up:
            reasons.append("state cannot be written; see the log")
        if not self.reload_ok:
            reasons.append("the configuration file is not applied; gpufault run --config.check reports the reason")
        return reasons


class Exposures:
    """Which root causes this node is at risk of. Recomputed only when facts or the catalogue change."""

    def __init__(self) -> None:
        self._of: tuple[Mapping[str, str], Catalogue] | None = None
        self._exposed: Mapping[str, bool] = {}

    def of(self, facts: Mapping[str, str], catalogue: Catalogue) -> Mapping[str, bool]:
        if self._of is None or self._of[0] is not facts or self._of[1] is not catalogue:
            self._exposed = {cause.id: is_at_risk(cause, facts) for cause in catalogue.root_causes.values()}
            self._of = facts, catalogue
        return self._exposed


def snapshot_of(
    counters: Counters,
    gauges: Gauges,
    ingest: Ingest,
    casebook: Casebook,
    watch: NodeWatch,
    *,
    exposures: Mapping[str, bool],
    outputs: Iterable[OutputState],
    job_incidents: Mapping[Labels, float],
    npd: bool,
) -> MetricsSnapshot:
    """All families, in the order that `METRICS` declares them. Called right after a commit.

    npd: include the families of node-problem-detector.
    """
    catalogue, engine, facts, faults = casebook.catalogue, ingest.pipeline.engine, watch.facts, casebook.faults.open
    values: Values = counters.families()
    values["gpufault_incidents_open"] = {
        (signature,): n for signature, n in casebook.tracker.open_by_signature().items()
    }
    shown = {
        signature
        for signature, _ in values.get("gpufault_lines_matched_total", {})
        if signature in catalogue.signatures
    }
    explaining = {cause.id for signature in shown for cause in catalogue.causes_of(signature)}
    values["gpufault_job_incidents"] = dict(job_incidents)
    if watch.attribution.pod_resources_up is not None:
        values["gpufault_pod_resources_up"] = {(): float(watch.attribution.pod_resources_up)}
    values["gpufault_exposure"] = {(c,): float(held) for c, held in exposures.items() if held or c in explaining}
    values["gpufault_node_info"] = {node_info_labels(facts.facts): 1.0}
    values["gpufault_gpu_info"] = {
        (gpu.pci, gpu.facts.get("gpu_model") or UNKNOWN, gpu.unique_id or UNKNOWN, gpu.serial or UNKNOWN): 1.0
        for gpu in facts.gpus
    }
    values["gpufault_node_fact"] = {(name, value or UNKNOWN): 1.0 for name, value in facts.facts.items()}
    values["gpufault_facts_probe_failed"] = {(probe,): 1.0 for probe in watch.failed()}
    values["gpufault_build_info"] = {(__version__, platform.python_version()): 1.0}
    values["gpufault_match_engine_info"] = {(engine.name, engine.version): 1.0}
    values["gpufault_config_last_reload_successful"] = {(): float(gauges.reload_ok)}
    values["gpufault_config_last_reload_success_timestamp_seconds"] = {(): gauges.reload_time}
    if gauges.web_config_ok is not None:
        values["gpufault_web_config_last_reload_successful"] = {(): float(gauges.web_config_ok)}
        values["gpufault_web_config_last_reload_success_timestamp_seconds"] = {(): gauges.web_config_time}
    values["gpufault_state_up"] = {(): float(gauges.state_up)}
    values["gpufault_last_commit_timestamp_seconds"] = {(): gauges.commit_time}
    values["gpufault_journal_up"] = {(): float(gauges.journal_up)}
    values["gpufault_journal_segments_dropped_total"] = {(): float(gauges.journal_segments_dropped)}
    occurred = {cause for (_, cause), count in values.get("gpufault_incidents_total", {}).items() if count}
    occurred |= {cause for cause, held in exposures.items() if held} | {fault.root_cause for fault in faults}
    values["gpufault_root_cause_info"] = {
        (cause.id, cause.title, cause.verdict, "critical" if cause.needs_operator else "error", cause.domain): 1.0
        for cause in catalogue.root_causes.values()
        if cause.id in occurred
    }
    _add_signatures(values, catalogue, ingest.timeouts(), gauges.quarantined, shown)
    _add_sources(values, ingest)
    values["gpufault_node_fault"] = {(f.gpu or "", f.root_cause, f.action): 1.0 for f in faults}
    if npd:
        incidents = values.get("gpufault_incidents_total", {})
        values["problem_counter"] = problem_counter(incidents)
        values["problem_gauge"] = problem_gauge(incidents, faults, catalogue)
    for output in outputs:
        values.setdefault("gpufault_output_up", {})[output.name,] = float(output.up)
        if output.lag is not None:
            values.setdefault("gpufault_output_lag_seconds", {})[output.name,] = output.lag
        if output.last_success is not None:
            values.setdefault("gpufault_output_last_success_timestamp_seconds", {})[output.name,] = output.last_success
    return MetricsSnapshot(
        families=tuple(
            Family(name, metric.kind, metric.help, metric.labels, values[name], counters.exemplars(name))
            for name, metric in METRICS.items()
            if values.get(name)
        )
    )


def _add_signatures(
    values: Values,
    catalogue: Catalogue,
    timeouts: Mapping[str, int],
    quarantined: Iterable[Quarantined],
    shown: Collection[str],
) -> None:
    packs: dict[str, int] = {}
    infos: dict[Labels, float] = {}
    for signature in catalogue.signatures.values():
        pack = catalogue.pack_of[signature.id]
        packs[pack] = packs.get(pack, 0) + 1
        if signature.id in shown:
            infos[signature.id, signature.vendor, signature.layer, signature.severity, signature.title, pack] = 1.0
    values["gpufault_signature_info"] = infos
    values["gpufault_signature_pack_info"] = {(pack, str(count)): 1.0 for pack, count in packs.items()}
    off = {signature.id for signature in quarantined}
    values["gpufault_signature_timeouts_total"] = {(name,): float(count) for name, count in timeouts.items()}
    values["gpufault_signature_off"] = {(name,): float(name in off) for name in timeouts}


def _add_sources(values: Values, ingest: Ingest) -> None:
    def put(name: str, labels: Labels, value: float) -> None:
        values.setdefault(f"gpufault_source_{name}", {})[labels] = value

    for source in ingest.sources:
        name, stats = source.name, source.stats
        put("up", (name,), float(not stats.blind))
        put("stalled_seconds", (name,), stats.stalled_seconds)
        put("bytes_read_total", (name,), stats.bytes_read)
        put("lag_bytes", (name,), stats.lag_bytes)
        put("lag_seconds", (name,), stats.lag_seconds)
        put("rotations_total", (name,), stats.rotations)
        put("truncations_total", (name,), stats.truncations)
        put("files", (name,), stats.files)
        put("open_files", (name,), stats.open_files)
        put("errors_total", (name,), ingest.source_errors.get(name, 0))
        if stats.last_read is not None:
            put("last_read_timestamp_seconds", (name,), stats.last_read)
        for reason, count in stats.deferred.items():
            put("deferred_total", (name, reason), count)
