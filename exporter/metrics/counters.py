"""All counters of the node: what has happened, and what of it has been committed.

Metric names and labels are declared in `METRICS`, nowhere else; docs/metrics.md is generated from it. Labels are ids of
the catalogue or PCI addresses, never text of a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.matching.pipeline import Processed
from exporter.core.model import UNKNOWN, Incident, Match, SourceKind, Verdict
from exporter.sources.base import SourceStats

Labels = tuple[str, ...]
OTHER = "other"
_LOST, _DROPPED = "gpufault_source_lost_records_total", "gpufault_source_dropped_total"


class Metric(NamedTuple):
    """One family as /metrics shows it. Stored counters are those that the ledger keeps over restarts."""

    kind: Literal["counter", "gauge", "unknown"]
    labels: Labels
    help: str
    stored: bool = False


METRICS: dict[str, Metric] = {
    "gpufault_incidents_total": Metric(
        "counter", ("signature", "root_cause"), "Incidents, each counted once, when its diagnosis settles.", True
    ),
    "gpufault_incident_verdicts_total": Metric(
        "counter",
        ("signature", "root_cause", "verdict", "source"),
        "Root incidents by verdict and by the log that reported them; a series appears with its first incident. Use it "
        "for alerts that page.",
        True,
    ),
    "gpufault_incidents_late_total": Metric(
        "counter", ("signature", "root_cause"), "Incidents that were old when they were read: a back-fill.", True
    ),
    "gpufault_cascades_total": Metric(
        "counter", ("signature",), "Incidents that are consequences of another; not in gpufault_incidents_total.", True
    ),
    "gpufault_gpu_incidents_total": Metric("counter", ("gpu", "signature"), "Incidents that name a GPU.", True),
    "gpufault_lines_matched_total": Metric("counter", ("signature", "source"), "Lines that show a signature.", True),
    "gpufault_unmatched_error_lines_total": Metric(
        "counter", ("source",), "Lines that look like a crash and match nothing: signatures to be written.", True
    ),
    "gpufault_echo_lines_total": Metric(
        "counter", ("source",), "Lines that only quote an error, or that users wrote into the kernel log.", True
    ),
    "gpufault_oversize_lines_total": Metric(
        "counter", ("source",), "Windows of lines over limits.line_bytes, and lines cut because they cost too much.", True
    ),
    "gpufault_incidents_open": Metric("gauge", ("signature",), "Incidents that have not settled yet."),
    "gpufault_last_incident_timestamp_seconds": Metric(
        "gauge", ("signature",), "When an incident last settled, by the node's clock.", True
    ),
    "gpufault_exposure": Metric(
        "gauge", ("root_cause",), "1 where this node's facts meet a root cause's conditions, crash or not."
    ),
    "gpufault_node_info": Metric(
        "gauge",
        ("gpu_model", "gpu_count", "driver_version", "rocm_version", "cuda_version", "kernel_release", "os"),
        "Node facts for joins; always 1.",
    ),
    "gpufault_gpu_info": Metric(
        "gauge", ("gpu", "gpu_model", "unique_id", "serial"), "1 for each GPU: which card is at an address."
    ),
    "gpufault_node_fact": Metric("gauge", ("fact", "value"), "Known facts of this node; always 1."),
    "gpufault_facts_probe_failed": Metric("gauge", ("probe",), "1 for each probe that failed when facts were last read."),
    "gpufault_label_values_refused_total": Metric(
        "counter", ("label",), "Values that were counted as `other`: over limits.label_values, or no GPU of this node.", True
    ),
    "gpufault_signature_info": Metric(
        "gauge", ("signature", "vendor", "layer", "severity", "title", "pack"), "1 for each signature that this node can show."
    ),
    "gpufault_signature_pack_info": Metric("gauge", ("pack", "signatures"), "Packs in use; always 1."),
    "gpufault_signature_timeouts_total": Metric("counter", ("signature",), "Regex calls, of echoes too, that ran out of time."),
    "gpufault_signature_off": Metric(
        "gauge", ("signature",), "1 while a signature or an echo is not searched for in some log, after timeouts there."
    ),
    "gpufault_match_engine_info": Metric("gauge", ("engine", "version"), "Match engine in use; always 1."),
    "gpufault_build_info": Metric("gauge", ("version", "python"), "Version for joins; always 1."),
    "gpufault_config_last_reload_successful": Metric("gauge", (), "1 if the configuration file is applied, 0 if rejected."),
    "gpufault_config_last_reload_success_timestamp_seconds": Metric("gauge", (), "Time of the last successful load."),
    "gpufault_web_config_last_reload_successful": Metric("gauge", (), "1 if --web.config.file is applied, 0 if rejected."),
    "gpufault_web_config_last_reload_success_timestamp_seconds": Metric("gauge", (), "Time of the last successful load."),
    "gpufault_source_up": Metric("gauge", ("source",), "1 where the source can be read."),
    "gpufault_source_bytes_read_total": Metric("counter", ("source",), "Bytes read."),
    "gpufault_source_lag_bytes": Metric("gauge", ("source",), "Bytes not yet processed."),
    "gpufault_source_lag_seconds": Metric("gauge", ("source",), "Age of the oldest byte not yet processed."),
    "gpufault_source_files": Metric("gauge", ("source",), "Files tracked."),
    "gpufault_source_open_files": Metric("gauge", ("source",), "Files held open."),
    "gpufault_source_rotations_total": Metric("counter", ("source",), "Rotations by rename seen."),
    "gpufault_source_truncations_total": Metric("counter", ("source",), "Truncations seen, copytruncate included."),
    "gpufault_source_dropped_total": Metric("counter", ("source", "reason"), "Files or lines that were skipped, and logs whose "
     "lines may be lost or counted twice.", True),
    "gpufault_source_deferred_total": Metric(
        "counter", ("source", "what"), "Polls in which something had to wait: job logs for the kernel's (`jobs`), logs of "
        "`running` jobs for each other, `backfill` for running jobs."
    ),
    "gpufault_source_lost_records_total": Metric(
        "counter", ("source",), "Kernel records overwritten before they were read.", True
    ),
    "gpufault_source_last_read_timestamp_seconds": Metric("gauge", ("source",), "When something was last read."),
    "gpufault_source_errors_total": Metric("counter", ("source",), "Errors after which the source went on."),
    "gpufault_journal_records_total": Metric("counter", ("kind",), "Records written to the journal.", True),
    "gpufault_journal_records_lost_total": Metric(
        "counter", (), "Records given up because neither journal nor state could be written for long; the oldest go.", True
    ),
    "gpufault_journal_up": Metric("gauge", (), "1 if the journal could be written when last tried."),
    "gpufault_journal_segments_dropped_total": Metric("counter", (), "Segments deleted to stay within journal.max_bytes."),
    "gpufault_output_up": Metric("gauge", ("output",), "1 if the last request of an output, or the last write, succeeded."),
    "gpufault_output_records_sent_total": Metric("counter", ("output",), "Incidents that a receiver accepted.", True),
    "gpufault_output_records_dropped_total": Metric(
        "counter", ("output", "reason"), "Incidents that a receiver refused, or that left the journal before it had them.", True
    ),
    "gpufault_output_failures_total": Metric(
        "counter", ("output", "reason"), "Requests and writes that failed; what was to be sent is sent again.", True
    ),
    "gpufault_output_lag_seconds": Metric("gauge", ("output",), "Age of the oldest incident not yet sent."),
    "gpufault_output_last_success_timestamp_seconds": Metric("gauge", ("output",), "When an output last succeeded."),
    "gpufault_state_set_aside_total": Metric("counter", (), "Damaged state files that were set aside.", True),
    "gpufault_state_up": Metric("gauge", (), "1 if the last commit succeeded."),
    # Counters without _total, as node-problem-detector names them, are of no type that OpenMetrics has.
    "problem_counter": Metric("unknown", ("reason",), "Incidents by signature. Only with outputs.npd."),
    "problem_gauge": Metric(
        "unknown", ("type", "reason"), "1 for a root cause that an operator has to fix. Only with outputs.npd."
    ),
    "gpufault_last_commit_timestamp_seconds": Metric(
        "gauge", (), "When what is shown here was committed: each second, unless the daemon hangs or cannot write."
    ),
}  # fmt: skip


class Counters:
    """Counter values now, and which of them are not committed yet."""

    def __init__(self, stored: Mapping[tuple[str, str], float], *, label_values: int = 200) -> None:
        self._values: dict[tuple[str, Labels], float] = {}
        self._unsaved: set[tuple[str, Labels]] = set()
        self._gpus: set[str] = set()
        self._label_values = label_values
        self._losses: dict[tuple[str, ...], int] = {}  # of sources, as they told them last, by name and labels
        for (name, labels), value in stored.items():
            key = (name, _labels(labels))
            if name in METRICS and METRICS[name].stored and len(key[1]) == len(METRICS[name].labels):
                self._values[key] = value
                if name == "gpufault_gpu_incidents_total" and key[1][0] != OTHER:
                    self._gpus.add(key[1][0])

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Count."""
        self._put(name, labels, self._values.get((name, labels), 0.0) + by)

    def read(self, done: Processed, source: SourceKind) -> None:
        """Count what came of a chunk."""
        self.count_matches(done.matches)
        for name, count in (
            ("gpufault_unmatched_error_lines_total", done.unmatched),
            ("gpufault_echo_lines_total", done.echoes),
            ("gpufault_oversize_lines_total", done.oversize),
        ):
            if count:
                self.add(name, source, by=count)

    def count_matches(self, matches: Iterable[Match]) -> None:
        """Count lines that match a signature."""
        for match in matches:
            self.add("gpufault_lines_matched_total", match.signature, match.source, by=match.lines)

    def lose(self, source: str, stats: SourceStats) -> None:
        """Count what a source has lost since this was last called."""
        self.start_at_zero([(_LOST, (source,))])
        counts: dict[tuple[str, ...], int] = {(_LOST, source): stats.lost_records}
        counts |= {(_DROPPED, source, reason): count for reason, count in stats.dropped.items()}
        for (name, *labels), count in counts.items():
            if more := count - self._losses.get((name, *labels), 0):
                self.add(name, *labels, by=more)
        self._losses |= counts

    def tell(self, diagnosis: Diagnosis, now: float, *, late: bool, gpu: str | None, gpu_there: bool) -> None:
        """Count an incident that settled, once. gpu_there: see `gpu_label`."""
        signature, cause = diagnosis.incident.signature, diagnosis.root_cause
        if late:
            self.add("gpufault_incidents_late_total", signature, cause)
        elif diagnosis.role == "cascade":
            self.add("gpufault_cascades_total", signature)
        else:
            self.count_root(diagnosis.incident, cause, diagnosis.verdict)
            self.put("gpufault_last_incident_timestamp_seconds", signature, value=now)
        if gpu and not late:
            self.add("gpufault_gpu_incidents_total", self.gpu_label(gpu, there=gpu_there), signature)

    def count_root(self, incident: Incident, cause: str, verdict: Verdict) -> None:
        """Count a root incident that is not late."""
        self.add("gpufault_incidents_total", incident.signature, cause)
        self.add("gpufault_incident_verdicts_total", incident.signature, cause, verdict, incident.first.source)

    def put(self, name: str, *labels: str, value: float) -> None:
        """Set a stored gauge."""
        self._put(name, labels, value)

    def start_at_zero(self, series: Iterable[tuple[str, Labels]]) -> None:
        """Let series exist before their first event: `increase()` does not see a series that begins at 1."""
        for name, values in series:
            if (name, values) not in self._values:
                self._put(name, values, 0.0)

    def gpu_label(self, gpu: str, *, there: bool = True) -> str:
        """A GPU's address as a label. A node has a handful; more are a storm and share one label.

        `there`: whether this node is known to have it. A job can write any address, and must not use the places up.
        """
        if not there or (gpu not in self._gpus and len(self._gpus) >= self._label_values):
            self.add("gpufault_label_values_refused_total", "gpu")
            return OTHER
        self._gpus.add(gpu)
        return gpu

    def unsaved(self) -> dict[tuple[str, str], float]:
        """Values that changed since `saved`, as the state file stores them."""
        return {(name, json.dumps(labels)): self._values[name, labels] for name, labels in self._unsaved}

    def saved(self) -> None:
        self._unsaved.clear()

    def families(self) -> dict[str, dict[Labels, float]]:
        """All values by metric name."""
        out: dict[str, dict[Labels, float]] = {}
        for (name, labels), value in self._values.items():
            out.setdefault(name, {})[labels] = value
        return out

    def _put(self, name: str, labels: Labels, value: float) -> None:
        assert METRICS[name].stored
        assert len(labels) == len(METRICS[name].labels)
        self._values[name, labels] = value
        self._unsaved.add((name, labels))


def _labels(text: str) -> Labels:
    """Stored labels; none where the text is not what `unsaved` wrote."""
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(labels) if isinstance(labels, list) and all(isinstance(label, str) for label in labels) else ()


def join_labels(facts: Mapping[str, str]) -> Labels:
    """The label values of gpufault_node_info: facts, or `unknown`, never an empty text."""
    return tuple(facts.get(name) or UNKNOWN for name in METRICS["gpufault_node_info"].labels)
