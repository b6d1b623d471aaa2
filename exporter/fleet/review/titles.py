"""Titles for ids, from the catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.core.catalogue.loader import Catalogue
from exporter.fleet.review.values import Title


def titles_of(catalogue: Catalogue) -> dict[str, Title]:
    """By id, of root causes and signatures; of an id that both have, the root cause's."""
    named = {
        s.id: Title(title=s.title, verdict=s.verdict, remediation=s.remediation) for s in catalogue.signatures.values()
    }
    named |= {
        c.id: Title(title=c.title, verdict=c.verdict, remediation=c.remediation) for c in catalogue.root_causes.values()
    }
    return named


def title_of(titles: Mapping[str, Title], id_: str) -> Title:
    """The title of an id; for one that the catalogue does not have, the id itself."""
    return titles.get(id_) or Title(title=id_)
