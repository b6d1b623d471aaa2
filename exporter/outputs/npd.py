"""What node-problem-detector shows on its own /metrics, of GPUs: for dashboards and alerts that were written for that.

Source: node-problem-detector, pkg/problemmetrics. `problem_counter` counts events of a reason, `problem_gauge` is 1 as long
as a condition (`type`) is true for a reason; both are 0 from the start. Neither tells of a node, a job or a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.node_faults import Fault
from exporter.core.model import Moment

CONDITION = "GPUFault"  # of the node in Kubernetes, too: deploy/npd
Labels = tuple[str, ...]


def problem_counter(incidents: Mapping[Labels, float]) -> dict[Labels, float]:
    """Incidents by (signature, root cause) as NPD counts: by reason, which is the signature in NPD's spelling."""
    counts: dict[Labels, float] = {}
    for (signature, _), count in incidents.items():
        reason = (camel_case(signature),)
        counts[reason] = counts.get(reason, 0.0) + count
    return counts


def problem_gauge(
    incidents: Mapping[Labels, float], faults: Iterable[Fault], catalogue: Catalogue, now: Moment
) -> dict[Labels, float]:
    """1 for each root cause since the boot that an operator has to fix, as `gpufault node-check` reports."""
    there = {fault.root_cause for fault in faults if fault.seen_since(None, now)}
    known = {cause for _, cause in incidents if (c := catalogue.root_causes.get(cause)) and c.needs_operator}
    return {(CONDITION, camel_case(cause)): float(cause in there) for cause in sorted(known | there)}


def camel_case(name: str) -> str:
    """`nv_xid_79_fell_off_bus` as `NvXid79FellOffBus`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
