"""What an incident says of the end of its process and its job, by the `death` of its signature. Knows no files or clocks."""

import re

from exporter.core.catalogue.loader import Catalogue
from exporter.core.model import UNRECOGNISED, Incident

# How compute-sanitizer begins its lines, and what cuda-gdb prints.
_DEBUGGER = re.compile(
    r"(?:^|\s)={9} \w|\bCUDA Exception: |\breceived signal CUDA_EXCEPTION_|\bCuda API error detected: "
)


def ends_process(incident: Incident, catalogue: Catalogue) -> bool:
    """Whether a process died, whatever became of its job: a shell script may end well after that."""
    if incident.signature == UNRECOGNISED:
        return incident.captures().get("kind") in ("c++", "signal")
    return _reports(incident, catalogue, "process", "signal")


def may_be_survived(incident: Incident, catalogue: Catalogue) -> bool:
    """Whether the program that reports an error can be the one that went on: not a launcher, and not one of several ranks."""
    is_own = incident.first.source == "job" and catalogue.signatures[incident.signature].role == "root"
    return is_own and not any(incident.ranks) and not ends_process(incident, catalogue)


def is_observed(incident: Incident) -> bool:
    """Whether only a debugger or sanitizer reports it, of a program that it runs."""
    return all(_DEBUGGER.search(match.text) for match in incident.matches)


def reports_signal(incident: Incident, catalogue: Catalogue) -> bool:
    """Whether it says which signal ended a program, and no reason."""
    return _reports(incident, catalogue, "signal", "stopped")


def explains_job_end(incident: Incident, catalogue: Catalogue) -> bool:
    """Whether it says why its job failed: a launcher's report that a rank has exited does not."""
    return catalogue.severity_of(incident) != "info" or _reports(incident, catalogue, "scheduler")


def _reports(incident: Incident, catalogue: Catalogue, *kinds: str) -> bool:
    death = catalogue.signatures[incident.signature].death
    return death is not None and death.kind in kinds and death.covers(incident.captures())
