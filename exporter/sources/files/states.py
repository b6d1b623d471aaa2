"""The states of a log, what can be observed of its file, and how an observation changes the state.

Pure: whoever calls makes the observation. docs/internals/tailing.md has the diagram.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from exporter.sources.files.gzip_reader import Search

MISSING_SECONDS = 30.0  # an NFS client may show an old folder for as long (acdirmin of nfs(5))


@dataclass(frozen=True, slots=True)
class Following:
    """A path leads to its file."""

    since: None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """No path of the globs leads to its bytes. They are read from its file while that is open, else looked for."""

    since: float
    closed: bool = False  # its file was not open when it left: nobody can tell what was written to it just before


@dataclass(frozen=True, slots=True)
class Searching:
    """Its bytes may be in one of some compressed files."""

    since: float
    closed: bool
    candidates: Search


@dataclass(frozen=True, slots=True)
class Gone:
    """Its bytes are out of reach."""

    since: float
    closed: bool


State = Following | Leaving | Searching | Gone


@dataclass(frozen=True, slots=True)
class Reached:
    """A path leads to a file with its bytes."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """The path leads to another file or none, or its file holds other bytes."""

    now: float
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A file with its bytes has been opened, wherever it is."""


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No file in the folders has its bytes."""

    now: float
    unknowable: bool = False  # nothing is known of its bytes that could tell them


@dataclass(frozen=True, slots=True)
class MaybePacked:
    """Some compressed files begin as it does."""

    candidates: Search


@dataclass(frozen=True, slots=True)
class Searched:
    """The compressed files have been read: one has its bytes and is open, or none has."""


Observation = Reached | Unreached | Found | Nowhere | MaybePacked | Searched


class Look(Enum):
    """What is to be looked at next to learn of a log."""

    PATH = auto()  # which file it leads to
    FILE = auto()  # how long the open file is
    FOLDERS = auto()  # which file has its bytes
    ARCHIVES = auto()  # whether the next compressed file has its bytes
    NOTHING = auto()


def step(state: State, seen: Observation) -> State:
    """The state of a log after an observation. What tells nothing new leaves it as it is."""
    match state, seen:
        case Gone(), _:
            return state
        case _, Reached():
            return Following()
        case _, Unreached(now, closed):
            return Leaving(now, closed)
        case ((Leaving(since) | Searching(since)), Found()):
            return Leaving(since)
        case Leaving(since, closed), Nowhere(now, unknowable) if unknowable or now - since >= MISSING_SECONDS:
            return Gone(since, closed)
        case Leaving(since, closed), MaybePacked(candidates):
            return Searching(since, closed, candidates)
        case Searching(since, closed), Searched():
            return Leaving(since, closed)
    return state


def next_look(state: State, *, is_open: bool) -> Look:
    """Where the next observation of a log comes from."""
    if isinstance(state, Following):  # of 20,000 logs in each round
        return Look.PATH
    if isinstance(state, Leaving):
        return Look.FILE if is_open else Look.FOLDERS
    return Look.ARCHIVES if isinstance(state, Searching) else Look.NOTHING
