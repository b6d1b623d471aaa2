"""The series that exist at 0 from the start: one a signature. A pair with a known cause begins with its first incident."""

from collections.abc import Collection, Iterator

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Signature
from exporter.core.model import UNKNOWN, SourceKind, Vendor
from exporter.metrics.counters import Labels

SEVERITIES = ("error", "critical")  # a node exposes hundreds: what ends no job appears with its first incident


def possible_series(
    catalogue: Catalogue, kinds: Collection[SourceKind], vendors: Collection[Vendor]
) -> Iterator[tuple[str, Labels]]:
    """Metric name and labels of the crashes that logs of these kinds can show on a node with GPUs of these vendors."""
    for signature in catalogue.signatures.values():
        if not set(kinds).intersection(signature.sources) or not _can_occur(signature, vendors):
            continue
        if signature.role == "context" or signature.severity not in SEVERITIES:
            continue
        yield "gpufault_incidents_total", (signature.id, UNKNOWN)
    for kind in sorted(kinds):
        yield "gpufault_unmatched_error_lines_total", (kind,)


def _can_occur(signature: Signature, present: Collection[Vendor]) -> bool:
    """Whether a signature can occur with GPUs of these vendors; always, while no GPU has been found."""
    return not present or signature.vendor == "any" or signature.vendor in present
