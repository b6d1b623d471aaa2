"""Joins the results of a log's parts into those of the whole log."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from exporter.core.matching.chunk_matcher import MAX_FACTS, MAX_MARKS
from exporter.core.model import NO_CONTEXT, Incident, LogContext
from exporter.core.values import dataclass, replace
from exporter.scan.plan import Unread
from exporter.scan.work import Item, Scanned


@dataclass(slots=True)
class _Before:
    """What is known of a log at the end of one of its parts. lost: the rest of the log could not be read."""

    newlines: int = 0
    context: LogContext = NO_CONTEXT
    lost: bool = False


class Stitched(NamedTuple):
    """The result of an item in its log. ended: the end of the log has been reached."""

    scanned: Scanned
    ended: bool


def stitched(results: Iterable[tuple[Item, Scanned]], again: Callable[[Item], Scanned]) -> Iterator[Stitched]:
    """Results in reading order. again: reads an item once more with the context before it."""
    before = _Before()
    for item, scanned in results:
        if item.span.stop is None and not item.span.start:
            yield Stitched(scanned, ended=not scanned.stopped)
            continue
        if item.span.start == 0:
            before = _Before()
        last = item.span.stop is None
        if before.lost:
            continue
        if item.span.start and _is_full(scanned.context):
            # It may have left out what it had no room for; with what was there before, it takes what the whole takes.
            span = item.span._replace(line=before.newlines + 1)
            scanned = again(item._replace(span=span, context=before.context))
            placed = scanned
        else:
            placed = _placed(scanned, before)
        before.newlines += scanned.newlines
        before.context = placed.context
        if scanned.unread:
            before.lost = True
            read = item.span.start + scanned.bytes
            placed = placed._replace(unread=Unread(scanned.path, f"{scanned.unread.why}, from byte {read} on"))
        yield Stitched(placed, ended=last or before.lost)


def after(before: LogContext, then: LogContext) -> LogContext:
    """The context of a log after a part, given the context before it and that of the part."""
    if not then.facts and not then.marks:
        return before
    facts, marks = dict(before.facts), dict(before.marks)
    for name, value in then.facts.items():
        if name in facts or len(facts) < MAX_FACTS:
            facts[name] = value
    for name, mark in then.marks.items():
        if name in marks or len(marks) < MAX_MARKS:
            marks[name] = mark
    return LogContext(facts=facts, marks=marks)


def _is_full(context: LogContext) -> bool:
    return len(context.facts) >= MAX_FACTS or len(context.marks) >= MAX_MARKS


def _placed(scanned: Scanned, before: _Before) -> Scanned:
    """With line numbers of the whole log, and contexts that include what precedes the part."""
    if not before.newlines and before.context == NO_CONTEXT:
        return scanned
    contexts: dict[int, LogContext] = {}  # matches share their contexts

    def context_of(line_context: LogContext) -> LogContext:
        if id(line_context) not in contexts:
            marks = {name: replace(mark, line=mark.line + before.newlines) for name, mark in line_context.marks.items()}
            contexts[id(line_context)] = after(before.context, LogContext(facts=line_context.facts, marks=marks))
        return contexts[id(line_context)]

    def moved(incident: Incident) -> Incident:
        matches = tuple(
            replace(match, line=match.line + before.newlines, context=context_of(match.context))
            for match in incident.matches
        )
        return replace(incident, matches=matches)

    return scanned._replace(incidents=tuple(map(moved, scanned.incidents)), context=context_of(scanned.context))
