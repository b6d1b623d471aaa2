"""Which errors in a log a program may have survived, if it went on. Knows no files and no clocks."""

from __future__ import annotations

from exporter.core.catalogue.loader import Catalogue
from exporter.core.model import UNRECOGNISED, Incident


def ends_process(incident: Incident, catalogue: Catalogue) -> bool:
    """Whether a process died, whatever became of its job: a shell script may end well after that."""
    death, captures = catalogue.signatures[incident.signature].death, incident.captures()
    if incident.signature == UNRECOGNISED:
        return captures.get("kind") in ("c++", "signal")
    return death is not None and death.kind in ("process", "signal") and death.covers(captures)


def may_be_survived(incident: Incident, catalogue: Catalogue) -> bool:
    """Whether the program that reports an error can be the one that went on: not a launcher, and not one of several ranks."""
    is_own = incident.first.source == "job" and catalogue.signatures[incident.signature].role == "root"
    return is_own and not any(incident.ranks) and not ends_process(incident, catalogue)
