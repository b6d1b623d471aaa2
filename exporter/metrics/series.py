"""Which series of incidents can occur on a node: those that must exist at 0 from the start, and no more (D13).

Values in, labels out. What has been counted is `exporter.metrics.counters`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Signature
from exporter.core.model import UNKNOWN, SourceKind, Vendor
from exporter.metrics.counters import Labels


def possible_series(
    catalogue: Catalogue, kinds: Collection[SourceKind], vendors: Collection[Vendor]
) -> Iterator[tuple[str, Labels]]:
    """Metric and labels of each series that sources of these kinds can show on a node with GPUs of these vendors."""
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
        if _may_follow(signature, catalogue):
            yield "gpufault_cascades_total", (signature.id,)
    for kind in sorted(kinds):
        yield "gpufault_unmatched_error_lines_total", (kind,)


def _can_occur(signature: Signature, present: Collection[Vendor]) -> bool:
    """Whether a node with GPUs of these vendors can show a signature; where none was found, any."""
    return not present or signature.vendor == "any" or signature.vendor in present


def _may_follow(signature: Signature, catalogue: Catalogue) -> bool:
    """Whether an incident can be another's consequence: the kernel's faults are apart unless they say otherwise."""
    return "job" in signature.sources or signature.role != "root" or catalogue.follows_any(signature.id)
