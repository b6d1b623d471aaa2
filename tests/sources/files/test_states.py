"""Every order of observations of a log, with a clock that only the test moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.sources.files.contents import Fingerprint, Search
from exporter.sources.files.states import (
    MISSING_SECONDS,
    Following,
    Gone,
    Leaving,
    Located,
    MaybePacked,
    NextStep,
    Nowhere,
    Observation,
    Reached,
    Searched,
    Searching,
    State,
    Unreached,
    next_step,
    step,
)

ORDER = 20  # observations, each of 8 kinds
SECONDS = 10.0  # between two of them
CANDIDATES = Search(Fingerprint(), [])


def observations(now: float) -> list[Observation]:
    return [
        Reached(),
        Unreached(now),
        Unreached(now, closed=True),
        Located(),
        Nowhere(now),
        Nowhere(now, unknowable=True),
        MaybePacked(CANDIDATES),
        Searched(),
    ]


@dataclass(frozen=True, slots=True)
class History:
    """What can be said of a log from its observations alone."""

    left: Unreached | None = None  # unless a path leads to it again
    found: bool = False  # since it left

    def after(self, seen: Observation) -> History:
        match seen:
            case Reached():
                return History()
            case Unreached():
                return History(left=seen)
            case Located():
                return replace(self, found=True)
        return self


def check(before: State, seen: Observation, after: State, history: History) -> None:
    """The promises, for one step."""
    left = history.left
    if isinstance(before, Gone):
        assert after is before
    elif isinstance(after, Gone):
        assert isinstance(seen, Nowhere)
        assert isinstance(before, Leaving)  # neither on a path nor with an archive that is still to be read
        assert left is not None
        assert seen.unknowable or seen.now - left.now >= MISSING_SECONDS
    else:
        assert isinstance(after, Following) == (left is None)
    if left is not None and isinstance(after, Leaving | Searching):
        assert after.since == left.now
        assert after.closed == (left.closed and not history.found)
    if isinstance(after, Searching) and not isinstance(before, Searching):
        assert isinstance(seen, MaybePacked)
    if isinstance(seen, Located):
        assert not isinstance(after, Searching)


def ends(state: State, now: float) -> bool:
    """Whether a log whose bytes stay nowhere is given up in time, by what it asks for."""
    for _ in range(6):
        match next_step(state, is_open=False):
            case NextStep.PATH:
                state = step(state, Unreached(now))
            case NextStep.FOLDERS:
                now += SECONDS
                state = step(state, Nowhere(now))
            case NextStep.ARCHIVES:
                state = step(state, Searched())
            case NextStep.FILE | NextStep.NOTHING:
                break
    return isinstance(state, Gone)


def test_every_order_of_observations_keeps_the_promises() -> None:
    reached: set[tuple[State, History]] = {(Following(), History())}
    for count in range(ORDER):
        now, behind = count * SECONDS, set()
        for before, history in reached:
            assert ends(before, now)
            for seen in observations(now):
                after, then = step(before, seen), history.after(seen)
                check(before, seen, after, then)
                behind.add((after, then))
        reached = behind
    assert len(reached) > ORDER  # orders that lead to the same are followed once


def test_an_open_file_is_read_and_not_looked_for() -> None:
    assert next_step(Leaving(0.0), is_open=True) is NextStep.FILE
    assert next_step(Following(), is_open=True) is NextStep.PATH
