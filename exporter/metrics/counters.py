"""The node daemon's metrics: their declarations, and the values of the counters that survive a restart.

`METRICS` is the only place that declares names and labels; docs/metrics.md is generated from it. Label values are
catalogue ids or PCI addresses, never text from a log.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from prometheus_client.samples import Exemplar

from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.matching.pipeline import Processed
from exporter.core.model import UNKNOWN, Domain, Incident, Match, SourceKind, Verdict
from exporter.metrics.exposition import MetricsSnapshot
from exporter.sources.base import SourceStats

Labels = tuple[str, ...]
OTHER = "other"
_INCIDENTS = "gpufault_incidents_total"
MAX_EXEMPLAR_JOB = 64  # characters; OpenMetrics allows 128 for all labels of an exemplar
_LOST, _DROPPED = "gpufault_source_lost_records_total", "gpufault_source_dropped_total"


class Metric(NamedTuple):
    """The declaration of one metric family. `stored`: `Counters` holds its values and the state file keeps them."""

    kind: Literal["counter", "gauge", "unknown"]
    labels: Labels
    help: str
    stored: bool = False


METRICS: dict[str, Metric] = {
    "gpufault_incidents_total": Metric(
        "counter", ("signature", "root_cause"), "Root incidents, each counted once, when its diagnosis is settled.", True
    ),
    "gpufault_incident_verdicts_total": Metric(
        "counter",
        ("signature", "root_cause", "verdict", "source", "domain"),
        "Root incidents by verdict, by the domain in which the fault lies, and by the log that reported them; a series "
        "appears with its first incident. Use it for alerts that page.",
        True,
    ),
    "gpufault_incidents_late_total": Metric(
        "counter", ("signature", "root_cause"),
        "Incidents older than incidents.late_after when read, as in a back-fill; not in gpufault_incidents_total.", True,
    ),
    "gpufault_cascades_total": Metric(
        "counter", ("signature",), "Incidents that are consequences of another; not in gpufault_incidents_total.", True
    ),
    "gpufault_gpu_incidents_total": Metric(
        "counter", ("gpu", "signature"), "Incidents that name a GPU, consequences included, by PCI address.", True
    ),
    "gpufault_lines_matched_total": Metric(
        "counter", ("signature", "source"), "Log lines that match a signature; one incident may have many.", True
    ),
    "gpufault_unmatched_error_lines_total": Metric(
        "counter", ("source",),
        "Log lines that look like a crash but match no signature; a rise calls for a new signature.", True,
    ),
    "gpufault_echo_lines_total": Metric(
        "counter", ("source",),
        "Log lines ignored because they only quote an error, or because a user wrote them into the kernel log.", True,
    ),
    "gpufault_oversize_lines_total": Metric(
        "counter", ("source",),
        "Pieces of lines longer than limits.line_bytes, and lines cut short because matching took too long.", True,
    ),
    "gpufault_incidents_open": Metric("gauge", ("signature",), "Incidents that have not settled yet."),
    "gpufault_last_incident_timestamp_seconds": Metric(
        "gauge", ("signature",), "Unix time when the latest root incident settled, by the node's clock.", True
    ),
    "gpufault_exposure": Metric(
        "gauge", ("root_cause",), "1 if the node is at risk: its facts meet the root cause's conditions, crash or not."
    ),
    "gpufault_node_fault": Metric(
        "gauge", ("gpu", "root_cause", "action"),
        "1 while a fault is open that an operator has to fix; gone when it is cleared. `gpu` is empty for the node.",
    ),
    "gpufault_job_incidents": Metric(
        "gauge", ("job", "user", "namespace", "pod", "signature", "root_cause"),
        "Root incidents of the last hour by job, for joins; at most limits.job_series series. With Prometheus' default, "
        "`job` becomes `exported_job`.",
    ),
    "gpufault_job_deaths_total": Metric(
        "counter", ("outcome",),
        "Jobs that failed on this node, by the scheduler's epilog: `explained` by a signature, `unrecognised`: the log shows "
        "a crash without a signature, `signal`: only a signal is reported, `no_line`: no line says why.", True,
    ),
    "gpufault_pod_resources_up": Metric(
        "gauge", (), "1 if the kubelet answered which pods have which GPUs. Only with jobs.pod_resources."
    ),
    "gpufault_root_cause_info": Metric(
        "gauge", ("root_cause", "title", "verdict", "severity", "domain"),
        "Descriptions of the root causes that have occurred or that the node is at risk of; always 1. Severity critical: "
        "an operator has to act.",
    ),
    "gpufault_node_info": Metric(
        "gauge",
        ("gpu_model", "gpu_count", "driver_version", "rocm_version", "cuda_version", "kernel_release", "os"),
        "Node facts for joins; always 1.",
    ),
    "gpufault_gpu_info": Metric(
        "gauge", ("gpu", "gpu_model", "unique_id", "serial"), "Identity of the card at each PCI address; always 1."
    ),
    "gpufault_node_fact": Metric("gauge", ("fact", "value"), "Known facts of this node; always 1."),
    "gpufault_facts_probe_failed": Metric(
        "gauge", ("probe",), "1 for each probe of node facts or GPU processes that failed when it last ran."
    ),
    "gpufault_label_values_refused_total": Metric(
        "counter", ("label",),
        "Times a label value was replaced by `other`: limits.label_values was reached, or the node has no such GPU.", True,
    ),
    "gpufault_signature_info": Metric(
        "gauge", ("signature", "vendor", "layer", "severity", "title", "pack"),
        "Descriptions of the signatures that have occurred on this node; always 1.",
    ),
    "gpufault_signature_pack_info": Metric(
        "gauge", ("pack", "signatures"), "Signature packs in use and their number of signatures; always 1."
    ),
    "gpufault_signature_timeouts_total": Metric(
        "counter", ("signature",), "Regex searches for a signature or echo pattern that exceeded their time limit."
    ),
    "gpufault_signature_off": Metric(
        "gauge", ("signature",), "1 while a signature or echo pattern is disabled for at least one log after timeouts."
    ),
    "gpufault_match_engine_info": Metric("gauge", ("engine", "version"), "Match engine in use; always 1."),
    "gpufault_build_info": Metric("gauge", ("version", "python"), "Versions of gpufault and Python; always 1."),
    "gpufault_config_last_reload_successful": Metric("gauge", (), "1 if the configuration file is applied, 0 if rejected."),
    "gpufault_config_last_reload_success_timestamp_seconds": Metric(
        "gauge", (), "Unix time when the configuration file was last applied."
    ),
    "gpufault_web_config_last_reload_successful": Metric("gauge", (), "1 if --web.config.file is applied, 0 if rejected."),
    "gpufault_web_config_last_reload_success_timestamp_seconds": Metric(
        "gauge", (), "Unix time when --web.config.file was last applied."
    ),
    "gpufault_source_up": Metric("gauge", ("source",), "1 if the source can be read, 0 if not; /-/ready shows the reason."),
    "gpufault_source_stalled_seconds": Metric(
        "gauge", ("source",), "How long a file system of the source has not answered; 0 if all answer."
    ),
    "gpufault_source_bytes_read_total": Metric("counter", ("source",), "Bytes read from the source."),
    "gpufault_source_lag_bytes": Metric("gauge", ("source",), "Bytes not yet processed."),
    "gpufault_source_lag_seconds": Metric("gauge", ("source",), "Age of the oldest byte not yet processed."),
    "gpufault_source_files": Metric("gauge", ("source",), "Files tracked."),
    "gpufault_source_open_files": Metric("gauge", ("source",), "Files held open."),
    "gpufault_source_rotations_total": Metric("counter", ("source",), "Rotations of logs by rename."),
    "gpufault_source_truncations_total": Metric(
        "counter", ("source",), "Truncations of logs, including rotations by copytruncate."
    ),
    "gpufault_source_dropped_total": Metric(
        "counter", ("source", "reason"),
        "Files and lines that were skipped, and logs whose lines may be lost or counted twice.", True,
    ),
    "gpufault_source_deferred_total": Metric(
        "counter", ("source", "what"),
        "Polls in which logs had to wait: `jobs` for the kernel log, `running` for other running jobs, `backfill` for "
        "running jobs.",
    ),
    "gpufault_source_lost_records_total": Metric(
        "counter", ("source",), "Kernel records overwritten before they were read.", True
    ),
    "gpufault_source_last_read_timestamp_seconds": Metric("gauge", ("source",), "Unix time when the source last gave data."),
    "gpufault_source_errors_total": Metric(
        "counter", ("source",), "Unexpected errors while reading the source; please report them. Reading continues."
    ),
    "gpufault_journal_records_total": Metric("counter", ("kind",), "Records added to the journal.", True),
    "gpufault_journal_records_lost_total": Metric(
        "counter", (), "Journal records discarded, oldest first, because the disk could not be written for too long.", True
    ),
    "gpufault_journal_up": Metric("gauge", (), "1 if the last write to the journal succeeded."),
    "gpufault_journal_segments_dropped_total": Metric("counter", (), "Segments deleted to stay within journal.max_bytes."),
    "gpufault_output_up": Metric("gauge", ("output",), "1 if the output's last request, or last file write, succeeded."),
    "gpufault_output_records_sent_total": Metric("counter", ("output",), "Incidents that the receiver accepted.", True),
    "gpufault_output_records_dropped_total": Metric(
        "counter", ("output", "reason"),
        "Incidents not delivered: the receiver refused them, or the journal deleted them before they were sent.", True,
    ),
    "gpufault_output_failures_total": Metric(
        "counter", ("output", "reason"),
        "Requests and file writes that failed; retried unless the receiver refused the data.", True,
    ),
    "gpufault_output_lag_seconds": Metric("gauge", ("output",), "Age of the oldest incident not yet sent."),
    "gpufault_output_last_success_timestamp_seconds": Metric(
        "gauge", ("output",), "Unix time of the output's last successful request or file write."
    ),
    "gpufault_state_set_aside_total": Metric(
        "counter", (), "Damaged state files that were renamed and kept; counting started from zero.", True
    ),
    "gpufault_state_up": Metric("gauge", (), "1 if the last commit of the state succeeded."),
    # node-problem-detector's counter has no _total. OpenMetrics requires it of counters, so the type is "unknown".
    "problem_counter": Metric("unknown", ("reason",), "Root incidents by signature. Only with outputs.npd."),
    "problem_gauge": Metric(
        "unknown", ("type", "reason"), "1 for a root cause that an operator has to fix. Only with outputs.npd."
    ),
    "gpufault_last_commit_timestamp_seconds": Metric(
        "gauge", (),
        "Unix time when these values were committed; more than a few seconds ago: the daemon hangs or cannot write.",
    ),
}  # fmt: skip


class Counters:
    """Current values of all stored metrics, and which of them have changed since the last commit."""

    def __init__(self, stored: Mapping[tuple[str, str], float], *, label_values: int = 200) -> None:
        self._values: dict[tuple[str, Labels], float] = {}
        self._unsaved: set[tuple[str, Labels]] = set()
        self._gpus: set[str] = set()
        self._label_values = label_values
        self._exemplars: dict[tuple[str, Labels], Exemplar] = {}
        self._losses: dict[tuple[str, ...], int] = {}  # totals that sources last reported, by metric name and labels
        for (name, labels), value in stored.items():
            key = (name, _parse_labels(labels))
            is_current = name in METRICS and METRICS[name].stored and len(key[1]) == len(METRICS[name].labels)
            if is_current and (value or name != _INCIDENTS):  # those at 0 begin anew
                self._values[key] = value
                if name == "gpufault_gpu_incidents_total" and key[1][0] != OTHER:
                    self._gpus.add(key[1][0])

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        self._set(name, labels, self._values.get((name, labels), 0.0) + by)

    def count_chunk(self, processed: Processed, source: SourceKind) -> None:
        """Count the lines of one chunk by what became of them: matched, unmatched, echo or oversize."""
        self.count_matches(processed.matches)
        for name, count in (
            ("gpufault_unmatched_error_lines_total", processed.unmatched),
            ("gpufault_echo_lines_total", processed.echoes),
            ("gpufault_oversize_lines_total", processed.oversize),
        ):
            if count:
                self.add(name, source, by=count)

    def count_matches(self, matches: Iterable[Match]) -> None:
        """Count lines that match a signature."""
        for match in matches:
            self.add("gpufault_lines_matched_total", match.signature, match.source, by=match.lines)

    def count_losses(self, source: str, stats: SourceStats) -> None:
        """Count the records and lines that a source has lost or skipped since the previous call."""
        self.start_at_zero([(_LOST, (source,))])
        counts: dict[tuple[str, ...], int] = {(_LOST, source): stats.lost_records}
        counts |= {(_DROPPED, source, reason): count for reason, count in stats.dropped.items()}
        for (name, *labels), count in counts.items():
            if more := count - self._losses.get((name, *labels), 0):
                self.add(name, *labels, by=more)
        self._losses |= counts

    def count_incident(
        self,
        diagnosis: Diagnosis,
        now: float,
        *,
        late: bool,
        gpu: str | None,
        gpu_on_node: bool,
        job: str | None = None,
    ) -> None:
        """Count a settled incident. Call once for each. gpu_on_node: see `gpu_label`. job: its id, for the exemplar."""
        signature, cause = diagnosis.incident.signature, diagnosis.root_cause
        if late:
            self.add("gpufault_incidents_late_total", signature, cause)
        elif diagnosis.role == "cascade":
            self.add("gpufault_cascades_total", signature)
        else:
            self.count_root(diagnosis.incident, cause, diagnosis.verdict, diagnosis.domain)
            self._set("gpufault_last_incident_timestamp_seconds", (signature,), now)
            labels = {"incident": diagnosis.id} | ({"job": job[:MAX_EXEMPLAR_JOB]} if job else {})
            self._exemplars["gpufault_incidents_total", (signature, cause)] = Exemplar(labels, 1.0, now)
        if gpu and not late:
            self.add("gpufault_gpu_incidents_total", self.gpu_label(gpu, on_node=gpu_on_node), signature)

    def count_root(self, incident: Incident, cause: str, verdict: Verdict, domain: Domain) -> None:
        self.add("gpufault_incidents_total", incident.signature, cause)
        self.add("gpufault_incident_verdicts_total", incident.signature, cause, verdict, incident.first.source, domain)

    def start_at_zero(self, series: Iterable[tuple[str, Labels]]) -> None:
        """Create missing series with the value 0: `increase()` ignores the step to 1 of a series that starts there."""
        for name, values in series:
            if (name, values) not in self._values:
                self._set(name, values, 0.0)

    def gpu_label(self, gpu: str, *, on_node: bool = True) -> str:
        """The label value for a GPU's PCI address: `other` beyond the limit on label values.

        on_node: whether the node is known to have this GPU. A job's log may name any address, so one that the node does
        not have becomes `other` and does not count towards the limit.
        """
        if not on_node or (gpu not in self._gpus and len(self._gpus) >= self._label_values):
            self.add("gpufault_label_values_refused_total", "gpu")
            return OTHER
        self._gpus.add(gpu)
        return gpu

    def unsaved(self) -> dict[tuple[str, str], float]:
        """Values that changed since the last call of `saved`, keyed as in the state file."""
        return {(name, json.dumps(labels)): self._values[name, labels] for name, labels in self._unsaved}

    def saved(self) -> None:
        """Record that all changed values have been committed."""
        self._unsaved.clear()

    def families(self) -> dict[str, dict[Labels, float]]:
        """All values, by metric name and labels."""
        out: dict[str, dict[Labels, float]] = {}
        for (name, labels), value in self._values.items():
            out.setdefault(name, {})[labels] = value
        return out

    def exemplars(self, name: str) -> dict[Labels, Exemplar]:
        """The latest incident behind each series of a counter, since the start of the daemon."""
        return {labels: exemplar for (of, labels), exemplar in self._exemplars.items() if of == name}

    def _set(self, name: str, labels: Labels, value: float) -> None:
        assert METRICS[name].stored
        assert len(labels) == len(METRICS[name].labels)
        self._values[name, labels] = value
        self._unsaved.add((name, labels))


def _parse_labels(text: str) -> Labels:
    """Label values from the state file; an empty tuple for invalid text."""
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(labels) if isinstance(labels, list) and all(isinstance(label, str) for label in labels) else ()


def incidents_by_cause(snapshot: MetricsSnapshot) -> tuple[tuple[str, int], ...]:
    """The root incidents so far by root cause, the most frequent first."""
    counts: dict[str, int] = {}
    for family in snapshot.families:
        if family.name == "gpufault_incidents_total":
            for (_, cause), count in family.samples.items():
                counts[cause] = counts.get(cause, 0) + int(count)
    return tuple(sorted(((c, n) for c, n in counts.items() if n), key=lambda item: (-item[1], item[0])))


def at_risk(snapshot: MetricsSnapshot) -> tuple[str, ...]:
    """The root causes whose conditions the node's facts meet."""
    return tuple(sorted(cause for (cause,), held in _samples(snapshot, "gpufault_exposure").items() if held))


def stated_facts(snapshot: MetricsSnapshot) -> tuple[tuple[str, str], ...]:
    """The node's facts by name."""
    return tuple(sorted((name, value) for name, value in _samples(snapshot, "gpufault_node_fact")))


def _samples(snapshot: MetricsSnapshot, name: str) -> Mapping[Labels, float]:
    return next((family.samples for family in snapshot.families if family.name == name), {})


def node_info_labels(facts: Mapping[str, str]) -> Labels:
    """The label values of gpufault_node_info; `unknown` for a missing fact."""
    return tuple(facts.get(name) or UNKNOWN for name in METRICS["gpufault_node_info"].labels)
