"""A simulated fleet as files: journals as nodes write them, or the history that a Prometheus would have scraped."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from exporter.core.diagnosis.records import rfc3339
from exporter.demo.simulator import Fleet
from exporter.fleet.observations import Floats, Observed

NODES_A_FILE = 500
SCRAPE_SECONDS = 300.0  # within the five minutes for which Prometheus looks back
PORT = 9873

Complete = Callable[[int, dict[str, Any]], Iterable[dict[str, Any]]]  # an incident's row and record to whole records


def write_journals(fleet: Fleet, folder: Path, complete: Complete = lambda _, record: (record,)) -> int:
    """Write JSONL into a new folder and return how many lines. complete: what else incidents say. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = 0
    for first in range(0, len(fleet.observed.nodes), NODES_A_FILE):
        nodes = range(first, min(first + NODES_A_FILE, len(fleet.observed.nodes)))
        with open(folder / f"journal-{first // NODES_A_FILE + 1:06}.jsonl", "w", encoding="utf-8") as file:
            for line in _records(fleet.observed, nodes, complete):
                file.write(line)
                lines += 1
    return lines


def _records(observed: Observed, nodes: range, complete: Complete) -> Iterator[str]:
    facts, beats, incidents = observed.facts, observed.beats, observed.incidents
    for row in np.flatnonzero((facts.node >= nodes.start) & (facts.node < nodes.stop)):
        facts_of_node = {
            name: facts.values[i][code]
            for i, (name, code) in enumerate(zip(facts.names, facts.codes[row].tolist(), strict=True))
            if code >= 0
        }
        record = {"kind": "facts", "time": rfc3339(float(facts.since[row])), "node": observed.nodes[facts.node[row]]}
        yield json.dumps({**record, "facts": facts_of_node}) + "\n"
    own = np.flatnonzero((beats.node >= nodes.start) & (beats.node < nodes.stop))
    times = {end: rfc3339(end) for end in np.unique(beats.end[own]).tolist()}
    for beat in own.tolist():
        yield (
            f'{{"kind": "heartbeat", "time": "{times[float(beats.end[beat])]}", "node": "{observed.nodes[beats.node[beat]]}", '
            f'"hours": {beats.hours[beat]:.6f}, "gpu_busy_hours": {beats.busy[beat]:.6f}}}\n'
        )
    for at in np.flatnonzero((incidents.node >= nodes.start) & (incidents.node < nodes.stop)).tolist():
        incident = {
            "kind": "incident",
            "id": str(incidents.id[at]),
            "time": rfc3339(float(incidents.time[at])),
            "node": observed.nodes[incidents.node[at]],
            "signature": observed.signatures[incidents.signature[at]],
            "root_cause": "unknown",
            "role": "root",
            "gpu": incidents.gpu[at] or None,
            "job": None
            if incidents.job[at] < 0
            else {
                "id": str(incidents.job[at]), "user": f"u{incidents.user[at]}", "kind": "slurm",
                **{kind: f"{kind}-{numbers[at]}" for kind, numbers in incidents.workload.items()},
            },
        }  # fmt: skip
        yield from (json.dumps(record) + "\n" for record in complete(at, incident))


def write_openmetrics(fleet: Fleet, out: IO[str]) -> None:
    """Write what scrapes of every node would have given, for `promtool tsdb create-blocks-from openmetrics`."""
    observed, window = fleet.observed, fleet.window
    times = np.arange(window.start, window.end, SCRAPE_SECONDS)
    stamps = [f"{t:.3f}" for t in times.tolist()]
    for name, kind in (("up", "gauge"), ("gpufault_node_fact", "gauge"), ("gpufault_incidents", "counter")):
        out.write(f"# TYPE {name} {kind}\n")
        for node in range(len(observed.nodes)):
            target = f'instance="{observed.nodes[node]}:{PORT}",job="gpufault"'
            if name == "up":
                out.writelines(f"up{{{target}}} 1 {stamp}\n" for stamp in stamps)
            elif name == "gpufault_node_fact":
                _write_facts(observed, node, target, times, stamps, out)
            else:
                _write_counters(observed, node, target, times, stamps, out)
    out.write("# EOF\n")


def _write_facts(
    observed: Observed, node: int, target: str, times: Floats, stamps: list[str], out: IO[str]
) -> None:  # fmt: skip
    facts = observed.facts
    rows = np.flatnonzero(facts.node == node)
    rows = rows[np.argsort(facts.since[rows], kind="stable")]
    held = rows[np.maximum(np.searchsorted(facts.since[rows], times, side="right") - 1, 0)]
    for i, fact in enumerate(facts.names):
        codes = facts.codes[held, i]
        for code in np.unique(codes[codes >= 0]).tolist():
            series = f'gpufault_node_fact{{{target},fact="{fact}",value="{facts.values[i][code]}"}}'
            out.writelines(f"{series} 1 {stamps[at]}\n" for at in np.flatnonzero(codes == code).tolist())


def _write_counters(
    observed: Observed, node: int, target: str, times: Floats, stamps: list[str], out: IO[str]
) -> None:  # fmt: skip
    own = observed.incidents.take(observed.incidents.node == node)
    for number, signature in enumerate(observed.signatures):
        totals = np.searchsorted(np.sort(own.time[own.signature == number]), times, side="right")
        series = f'gpufault_incidents_total{{{target},signature="{signature}",root_cause="unknown"}}'
        out.writelines(f"{series} {total} {stamp}\n" for total, stamp in zip(totals.tolist(), stamps, strict=True))
