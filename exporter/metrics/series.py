"""The series that can occur on a node. The daemon exports them at 0 from the start, so that `increase()` sees a first crash."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Signature
from exporter.core.model import UNKNOWN, SourceKind, Vendor
from exporter.metrics.counters import Labels


def possible_series(
    catalogue: Catalogue, kinds: Collection[SourceKind], vendors: Collection[Vendor]
) -> Iterator[tuple[str, Labels]]:
    """Metric name and labels of each series that logs of these kinds can raise on a node with GPUs of these vendors."""
    for signature in catalogue.signatures.values():
        sources = sorted(set(kinds).intersection(signature.sources))
        if not sources or not _can_occur(signature, vendors):
            continue
        for source in sources:
            yield "gpufault_lines_matched_total", (signature.id, source)
        if signature.role == "context":
            continue
        causes = [cause.id for cause in catalogue.causes_of(signature.id)] + [UNKNOWN]
        for cause in causes:
            yield "gpufault_incidents_total", (signature.id, cause)
        if _can_be_consequence(signature, catalogue):
            yield "gpufault_cascades_total", (signature.id,)
    for kind in sorted(kinds):
        yield "gpufault_unmatched_error_lines_total", (kind,)


def _can_occur(signature: Signature, present: Collection[Vendor]) -> bool:
    """Whether a signature can occur with GPUs of these vendors; always, while no GPU has been found."""
    return not present or signature.vendor == "any" or signature.vendor in present


def _can_be_consequence(signature: Signature, catalogue: Catalogue) -> bool:
    """Whether an incident can be a consequence of another. For a kernel fault, its pack must say so (`follows`)."""
    return "job" in signature.sources or signature.role != "root" or catalogue.follows_any(signature.id)
