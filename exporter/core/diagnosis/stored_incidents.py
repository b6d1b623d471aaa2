"""Open incidents as JSON text in the state file. An unreadable text raises ValueError, and the caller drops it."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from exporter.core.collectives import dump_waiting, load_waiting
from exporter.core.diagnosis.open_incidents import Entry, Reported
from exporter.core.matching.log_state import dump_context, load_context
from exporter.core.matching.stored_matches import dump_match, load_match
from exporter.core.model import MAX_KEPT_MATCHES, Incident, LogContext, Match

MAX_KEPT_TEXTS = 256  # incidents with ten matches each: 2 MiB at 8 kB each
_COUNTS = tuple(f.name for f in fields(Incident) if f.name not in ("matches", "ranks", "waiting", "closes"))


class _MatchTexts(NamedTuple):
    """The matches of one incident and their contexts, as JSON."""

    matches: str
    contexts: str


class EntryTexts:
    """The JSON of open incidents. In a storm their counts grow while their matches stay: the text of those is kept."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[tuple[Match, ...], _MatchTexts]] = {}

    def of(self, entry: Entry) -> str:
        """One open incident as JSON, the same as by `dump_entry`."""
        matches = entry.incident.matches
        if len(matches) < MAX_KEPT_MATCHES:  # others may still be added
            return dump_entry(entry)
        kept = self._kept.get(entry.number)
        if kept is None or kept[0] is not matches:
            if len(self._kept) >= MAX_KEPT_TEXTS:
                self._kept.clear()
            kept = self._kept[entry.number] = (matches, _dump_matches(matches))
        return _dump_with(entry, kept[1])

    def forget(self, number: int) -> None:
        self._kept.pop(number, None)


def dump_entry(entry: Entry) -> str:
    """One open incident as JSON; shared contexts are written once."""
    return _dump_with(entry, _dump_matches(entry.incident.matches))


def _dump_matches(matches: Sequence[Match]) -> _MatchTexts:
    contexts: list[LogContext] = []
    plain = []
    for match in matches:
        if match.context not in contexts:
            contexts.append(match.context)
        plain.append({**dump_match(match), "context": contexts.index(match.context)})
    return _MatchTexts(_to_json(plain), _to_json([dump_context(c) for c in contexts]))


def _dump_with(entry: Entry, texts: _MatchTexts) -> str:
    counts = {name: getattr(entry.incident, name) for name in _COUNTS}
    sets = {"ranks": sorted(entry.incident.ranks), "closes": sorted(entry.incident.closes)}
    waiting = {"waiting": dump_waiting(entry.incident.waiting)} if entry.incident.waiting else {}
    incident = _to_json({**counts, **sets, **waiting})
    reported = _to_json(_plain(entry.reported))
    return f'{{"incident":{incident[:-1]},"matches":{texts.matches}}},"told":{reported},"contexts":{texts.contexts}}}'


def _to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def load_entry(number: int, text: str) -> Entry:
    """Read the text that `dump_entry` wrote."""
    try:
        stored = json.loads(text)
        contexts = [load_context(c) for c in stored["contexts"]]
        incident = stored["incident"]
        matches = tuple(load_match(m, contexts[m["context"]]) for m in incident["matches"])
        reported = Reported(**stored["told"]) if stored["told"] else None
        sets = {name: frozenset(incident.get(name, ())) for name in ("ranks", "closes")}
        waiting = load_waiting(incident.get("waiting", ()))
        return Entry(number, Incident(**{**incident, **sets, "waiting": waiting, "matches": matches}), reported)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"invalid stored incident: {error!r}") from None


def _plain(value: Reported | None) -> dict[str, Any] | None:
    return None if value is None else {f.name: getattr(value, f.name) for f in fields(value)}
