"""GPU faults as metrics of node-problem-detector (NPD), for dashboards and alerts that were written for it.

Source: node-problem-detector, pkg/problemmetrics. `problem_counter` counts events of a reason; `problem_gauge` is 1 while
a condition (`type`) is true for a reason. Both are 0 from the start and have no labels for node, job or device.
"""

from collections.abc import Iterable, Mapping

from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.node_faults import Fault

CONDITION = "GPUFault"  # also the condition of the Kubernetes node: deploy/npd
Labels = tuple[str, ...]


def problem_counter(incidents: Mapping[Labels, float]) -> dict[Labels, float]:
    """Sums incidents by (signature, root cause) to counts by reason: the signature in camel case, as NPD writes it."""
    counts: dict[Labels, float] = {}
    for (signature, _), count in incidents.items():
        reason = (camel_case(signature),)
        counts[reason] = counts.get(reason, 0.0) + count
    return counts


def problem_gauge(
    incidents: Mapping[Labels, float], faults: Iterable[Fault], catalogue: Catalogue
) -> dict[Labels, float]:
    """1 for each root cause that an operator has to fix, as `gpufault node-check` reports; 0 for others that can occur."""
    current = {fault.root_cause for fault in faults}
    signatures = {signature for signature, _ in incidents}
    possible = {cause.id for one in signatures for cause in catalogue.causes_of(one) if cause.needs_operator}
    return {(CONDITION, camel_case(cause)): float(cause in current) for cause in sorted(possible | current)}


def camel_case(name: str) -> str:
    """Converts `nv_xid_79_fell_off_bus` to `NvXid79FellOffBus`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
