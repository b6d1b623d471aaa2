"""Incidents: groups of matches that belong together. Knows nothing of causes, files or clocks.

Matches of one signature and scope form one incident if no silence between them exceeds the window, or the longer one of
a signature whose state is reported again and again. Merging is associative and commutative: any order of arrival gives
the same incidents, online and offline. Programs print tracebacks without a timestamp: such an incident takes the time of
the next line of its log that has one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from exporter.core.collectives import all_of, merged
from exporter.core.decoding.jobs import log_group
from exporter.core.decoding.timestamps import MAX_LINES_BACK
from exporter.core.diagnosis.attribution import job_of_named_group
from exporter.core.facts.pci import normalise_pci
from exporter.core.model import MAX_KEPT_MATCHES, Incident, Match

# scope, signature, GPU, whether the vendor's table calls it critical, who raised it
Key = tuple[str, str, str | None, bool, str | None]

NO_REPEATS: Mapping[str, float] = MappingProxyType({})
MAX_RANKS = 4096  # ranks named in a record; the number of lines stays exact
MAX_CLOSES = 16  # blocks that a process's lines close; one in a hundred crashes has a second


def scope_of(match: Match) -> str:
    """The scope of a match: one boot of a kernel, a job, or a log whose job is unknown."""
    if match.source == "kernel":
        return f"kernel {match.origin}"
    return log_group(match.job, match.path) if match.job else f"log {match.path}"


def condense(matches: Iterable[Match], window: float, repeats: Mapping[str, float] = NO_REPEATS) -> list[Incident]:
    """Group matches into incidents in one pass, without regard to open incidents. repeats: as in the catalogue."""
    by_key: dict[Key, list[Match]] = {}
    for match in matches:
        gpu = match.gpu if match.source == "kernel" else None
        by_key.setdefault((scope_of(match), match.signature, gpu, match.grave, match.raised_by), []).append(match)
    incidents = []
    for key, matches_of_key in by_key.items():
        matches_of_key.sort(key=_order)
        start, last, silence = 0, matches_of_key[0].last_time, max(window, repeats.get(key[1], 0.0))
        for index, match in enumerate(matches_of_key):
            if match.time - last > silence:
                incidents.append(_of(key, matches_of_key[start:index], last))
                start = index
            last = max(last, match.last_time)
        incidents.append(_of(key, matches_of_key[start:], last))
    return incidents


def _of(key: Key, matches: Sequence[Match], last_time: float) -> Incident:
    """One incident from sorted matches."""
    return Incident(
        scope=key[0],
        signature=key[1],
        gpu=key[2],
        matches=tuple(_without_flood(match) for match in matches[:MAX_KEPT_MATCHES]),
        lines=sum(match.lines for match in matches),
        last_time=last_time,
        first_read=min(m.read_at for m in matches),
        last_read=max(m.read_at for m in matches),
        ranks=_bounded(frozenset(m.rank for m in matches if m.rank).union(*(m.ranks for m in matches))),
        waiting=all_of(m.waiting for m in matches),
        grave=key[3],
        raised_by=key[4],
        closes=_bounded_closes(m.closes for m in matches if m.closes),
    )


def _without_flood(match: Match) -> Match:
    """A match without the flood that it represents, and without where its ranks wait: its incident has both."""
    is_one = match.lines == 1 and not match.waiting
    return match if is_one else replace(match, lines=1, until=None, ranks=frozenset(), waiting=())


def merge(a: Incident, b: Incident) -> Incident:
    """Join two incidents; the order of merges does not matter."""
    return replace(
        a,
        matches=_earliest(a.matches, b.matches),
        lines=a.lines + b.lines,
        last_time=max(a.last_time, b.last_time),
        first_read=min(a.first_read, b.first_read),
        last_read=max(a.last_read, b.last_read),
        ranks=_bounded(a.ranks | b.ranks),
        waiting=merged(a.waiting, b.waiting),
        closes=_bounded_closes(a.closes | b.closes),
    )


def _earliest(a: tuple[Match, ...], b: tuple[Match, ...]) -> tuple[Match, ...]:
    """The earliest of the matches of two incidents; `a` itself if it is full and all others are later, as in a storm."""
    if len(a) == MAX_KEPT_MATCHES and _order(a[-1]) < _order(b[0]):
        return a
    return tuple(sorted({_order(match): match for match in (*a, *b)}.values(), key=_order)[:MAX_KEPT_MATCHES])


def _order(match: Match) -> tuple[tuple[float, str, int, str], str]:
    """A sort key, different for any two matches."""
    return match.order, match.origin


def _bounded_closes(blocks: Iterable[str]) -> frozenset[str]:
    return frozenset(sorted(set(blocks))[:MAX_CLOSES])


def _bounded(ranks: frozenset[str]) -> frozenset[str]:
    return ranks if len(ranks) <= MAX_RANKS else frozenset(sorted(ranks)[:MAX_RANKS])


def within_window(a: Incident, b: Incident, window: float) -> bool:
    """Whether the silence between two incidents is at most `window` seconds."""
    return a.first.time - b.last_time <= window and b.first.time - a.last_time <= window


def may_explain(a: Incident, b: Incident, window: float, *, live: bool = True) -> bool:
    """Whether one incident may explain the other: close in time, in one scope or one from the kernel, not on two GPUs.

    Job and kernel incidents are compared by time. `live`: the time of reading replaces missing timestamps.
    """
    if not within_window(a, b, window):
        return False
    if a.scope != b.scope:
        if a.first.source == b.first.source:
            return False
        if not live and not (a.first.is_stamped and b.first.is_stamped):
            return False
    return not are_on_two_gpus(a, b) or shares_job(a, b)


def are_on_two_gpus(a: Incident, b: Incident) -> bool:
    gpu_a, gpu_b = gpu_of(a), gpu_of(b)
    return gpu_a is not None and gpu_b is not None and gpu_a != gpu_b


def are_of_two_runs(a: Incident, b: Incident) -> bool:
    """Whether a program crashed, was started again in the same log and crashed again."""
    return a.first.source == "job" and a.first.path == b.first.path and a.raised_by != b.raised_by


def shares_job(a: Incident, b: Incident) -> bool:
    """Whether processes of one job raised two kernel incidents, as the ranks of a job on several GPUs do."""
    if a.raised_by is None or b.raised_by is None or a.scope != b.scope:
        return False
    return not jobs_of(a).isdisjoint(jobs_of(b))


def jobs_of(incident: Incident) -> frozenset[str]:
    """The jobs whose process or card a kernel incident names, by what no job can write."""
    if incident.first.source != "kernel":
        return frozenset()
    groups = (job_of_named_group(match) for match in incident.matches if "cgroup" in match.captures)
    named = (match.named_job for match in incident.matches)
    return frozenset(name for name in named if name).union(group.name for group in groups if group)


def lent_process(incident: Incident, raiser: Incident) -> Incident:
    """A block of lines as those of the process that raised them, with what is known of that process."""
    raised = next((m for m in raiser.matches if m.closes == incident.raised_by), raiser.first)
    has_job = bool(raised.claims or raised.named_job)

    def of_process(match: Match) -> Match:
        teller = raised if has_job else match
        return replace(
            match, raised_by=raiser.raised_by, claims=teller.claims, named_job=teller.named_job, process=teller.process
        )

    return replace(incident, matches=tuple(map(of_process, incident.matches)), raised_by=raiser.raised_by)


def gpu_of(incident: Incident) -> str | None:
    """The GPU of an incident: from its key, else from the first match that names one."""
    return incident.gpu or next((m.gpu for m in incident.matches if m.gpu), None)


def device_of(incident: Incident) -> str | None:
    """The PCI address of an incident: of a GPU or another device."""
    devices = (normalise_pci(m.captures["device"]) for m in incident.matches if "device" in m.captures)
    return gpu_of(incident) or next((device for device in devices if device), None)


def timed_by_neighbour(incidents: Iterable[Incident]) -> Iterator[tuple[Incident, Incident]]:
    """Each incident of a job without a timestamp, with itself at the time of the next one that has one in its log, if that
    is at most MAX_LINES_BACK lines later.
    """
    of_jobs = [incident for incident in incidents if incident.first.source == "job"]
    path, line, time = "", 0, 0.0
    for incident in sorted(of_jobs, key=lambda i: (i.first.path, i.first.line), reverse=True):
        first = incident.first
        if first.is_stamped:
            path, line, time = first.path, first.line, first.time
        elif (
            first.path == path
            and line - first.line <= MAX_LINES_BACK
            and not any(m.is_stamped for m in incident.matches)
        ):
            matches = tuple(
                replace(match, time=time, time_source="inherited", until=None) for match in incident.matches
            )
            yield incident, replace(incident, matches=matches, last_time=time)


def ended_by_neighbour(incidents: Iterable[Incident]) -> Iterator[tuple[Incident, Incident]]:
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
        until = max((ends.get(key, 0.0) for key in inherited), default=0.0)
        if until > incident.last_time:
            yield incident, replace(incident, last_time=until)
