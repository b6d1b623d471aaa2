"""Times of incidents that the places of their lines tell: programs print tracebacks without a timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from exporter.core.decoding.timestamps import LOOK_BACK
from exporter.core.model import Incident


def timed_by_place(incidents: Iterable[Incident]) -> Iterator[tuple[Incident, Incident]]:
    """Each incident of a job without a timestamp, with itself at the time of the next one that has one in its log, if that
    is at most LOOK_BACK lines later.
    """
    of_jobs = [incident for incident in incidents if incident.first.source == "job"]
    path, line, time = "", 0, 0.0
    for incident in sorted(of_jobs, key=lambda i: (i.first.path, i.first.line), reverse=True):
        first = incident.first
        if first.is_stamped:
            path, line, time = first.path, first.line, first.time
        elif first.path == path and line - first.line <= LOOK_BACK and not any(m.is_stamped for m in incident.matches):
            matches = tuple(
                replace(match, time=time, time_source="inherited", until=None) for match in incident.matches
            )
            yield incident, replace(incident, matches=matches, last_time=time)


def ended_by_place(incidents: Iterable[Incident]) -> Iterator[tuple[Incident, Incident]]:
    """Each incident of a job with a line that has the time of a line before it, with itself up to the time of the first
    line behind that has one: it happened between the two.
    """
    of_jobs = [incident for incident in incidents if incident.first.source == "job"]
    ends: dict[tuple[str, float], float] = {}
    for match in (match for incident in of_jobs for match in incident.matches if match.untimed):
        since, until = match.untimed or (0.0, 0.0)
        ends[(match.path, since)] = max(until, ends.get((match.path, since), 0.0))
    for incident in of_jobs if ends else ():
        inherited = ((m.path, m.time) for m in incident.matches if m.time_source == "inherited")
        until = max((ends.get(place, 0.0) for place in inherited), default=0.0)
        if until > incident.last_time:
            yield incident, replace(incident, last_time=until)
