"""The stored position of a log, its states, what can be observed of its file, and how an observation changes the state.

Pure: whoever calls makes the observation. docs/internals/tailing.md has the diagram.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from exporter.core.model import LogFormat
from exporter.sources.files.contents import Fingerprint, Inode, Search

MISSING_SECONDS = 30.0  # an NFS client may show an old folder for as long (acdirmin of nfs(5))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """What is stored of a log: where its bytes are, and where the first of them lies that is not consumed yet.

    `mark` tells the bytes up to `offset`; while nothing is consumed, those that were looked at.
    """

    path: str
    place: str = ""  # where `path` led to, if it is a link or has been given to another file
    called: tuple[str, ...] = ()  # other paths of the globs that have led here: links, or names before a rotation
    device: int = 0
    inode: int = 0
    generation: int | None = None
    modified: int = 0  # nanoseconds of the file system's clock
    offset: int = 0
    line: int = 1
    mark: Fingerprint = field(default_factory=Fingerprint)
    format: LogFormat | None = None
    whole: bool = False  # all of it had been seen when its bytes were lost

    @property
    def file(self) -> Inode:
        return self.device, self.inode

    @property
    def shown_path(self) -> str:
        """Rotation may have given it any name, also one that is not UTF-8."""
        return self.path.encode("utf-8", "backslashreplace").decode()


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
class Located:
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


Observation = Reached | Unreached | Located | Nowhere | MaybePacked | Searched


class NextStep(Enum):
    """Where the next observation of a log comes from."""

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
        case ((Leaving(since) | Searching(since)), Located()):
            return Leaving(since)
        case Leaving(since, closed), Nowhere(now, unknowable) if unknowable or now - since >= MISSING_SECONDS:
            return Gone(since, closed)
        case Leaving(since, closed), MaybePacked(candidates):
            return Searching(since, closed, candidates)
        case Searching(since, closed), Searched():
            return Leaving(since, closed)
    return state


def next_step(state: State, *, is_open: bool) -> NextStep:
    """Where the next observation of a log comes from."""
    if isinstance(state, Following):  # of 20,000 logs in each round
        return NextStep.PATH
    if isinstance(state, Leaving):
        return NextStep.FILE if is_open else NextStep.FOLDERS
    return NextStep.ARCHIVES if isinstance(state, Searching) else NextStep.NOTHING
