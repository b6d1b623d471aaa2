"""Additions of the catalogue to observations: vendors and groups of signatures, and nodes that meet a cause's conditions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Condition
from exporter.core.diagnosis.causes import is_at_risk
from exporter.fleet.observations import Observed, SignatureGroup


def with_catalogue(observed: Observed, catalogue: Catalogue) -> Observed:
    """The observations with the vendors of signatures, and the groups that these form by verdict and by root cause."""
    signatures = catalogue.signatures.values()
    verdicts = [
        SignatureGroup(
            level="verdict",
            name=f"{verdict} crashes",
            signatures=tuple(s.id for s in signatures if s.usual_verdict == verdict),
        )
        for verdict in ("infrastructure", "workload", "unclear")
    ]
    causes = [
        SignatureGroup(level="root_cause", name=cause.id, signatures=cause.signatures)
        for cause in catalogue.root_causes.values()
    ]
    vendors = {signature.id: signature.vendor for signature in signatures}
    return replace(observed, vendors={**vendors, **observed.vendors}, groups=(*verdicts, *causes))


def with_locations(observed: Observed, location_globs: Sequence[str]) -> Observed:
    """The observations with globs of facts that the site calls places."""
    return replace(observed, facts=replace(observed.facts, location_globs=tuple(location_globs)))


def nodes_meeting_causes(observed: Observed, catalogue: Catalogue) -> Mapping[str, tuple[str, Sequence[int]]]:
    """The nodes whose facts meet each root cause's conditions, with a signature of the cause (one that crashed, if any)."""
    facts = observed.facts
    latest = np.full(len(observed.nodes), -1)
    order = np.argsort(facts.since, kind="stable")
    latest[facts.node[order]] = order
    nodes = np.flatnonzero(latest >= 0)
    by_cause = {}
    for cause in catalogue.root_causes.values():
        if cause.when is None or not cause.signatures:
            continue
        asked = sorted({fact for fact in _facts_of(cause.when) if fact in facts.names})
        if not asked:
            continue
        columns = [facts.names.index(fact) for fact in asked]
        kinds, kind_of = np.unique(facts.codes[latest[nodes]][:, columns], axis=0, return_inverse=True)
        meets = [
            is_at_risk(cause, {f: facts.values[c][v] for f, c, v in zip(asked, columns, kind, strict=True) if v >= 0})
            for kind in kinds.tolist()
        ]
        met = nodes[np.array(meets, dtype=bool)[kind_of.reshape(-1)]]
        if len(met):
            signature = next((s for s in cause.signatures if s in observed.signatures), cause.signatures[0])
            by_cause[cause.id] = signature, met.tolist()
    return by_cause


def _facts_of(condition: Condition) -> Iterator[str]:
    if condition.fact:
        yield condition.fact
    for child in (*(condition.all or ()), *(condition.any or ()), *((condition.not_,) if condition.not_ else ())):
        yield from _facts_of(child)
