"""The values that flow through gpufault, from a chunk of bytes to a diagnosis.

Only data lives here: no parsing, no I/O, no clocks. Every value is frozen; functions elsewhere return new ones.
Times are Unix seconds (float, UTC). Offsets and sizes are bytes. Lines count from 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

Vendor = Literal["amd", "intel", "nvidia", "any"]
Layer = Literal["kernel", "runtime", "library", "framework", "fabric", "host"]
Severity = Literal["info", "warning", "error", "critical"]
Role = Literal["root", "confirmation", "cascade", "context"]
Verdict = Literal["infrastructure", "workload", "unclear"]
Reach = Literal["job", "gpu", "node", "fabric"]
Action = Literal["ignore", "restart_job", "run_diagnostics", "reset_gpu", "reboot", "replace"]  # the mildest first
SourceKind = Literal["job", "kernel"]
TimeSource = Literal["log", "observed"]
LogFormat = Literal["plain", "cri", "docker", "kmsg"]

ACTIONS: tuple[Action, ...] = get_args(Action)
OPERATOR_ACTIONS: frozenset[Action] = frozenset({"run_diagnostics", "reset_gpu", "reboot", "replace"})
MAX_KEPT_MATCHES = 10  # of an incident, the earliest; an amdgpu page-fault block has 11 lines, its first ten tell all
UNKNOWN = "unknown"
PEER_FAILURE = "peer_failure"
JOBS_ON_SM = "xid_13_jobs_on_sm"  # the one fact beside a match that was counted from kernel lines: see `repeats`


class Truth(StrEnum):
    """The result of a condition: held, failed, or undetermined because a fact is missing."""

    HELD = "held"
    FAILED = "failed"
    UNDETERMINED = "undetermined"

    @property
    def negated(self) -> Truth:
        return {Truth.HELD: Truth.FAILED, Truth.FAILED: Truth.HELD}.get(self, self)

    @staticmethod
    def all_of(truths: Iterable[Truth]) -> Truth:
        found = set(truths)
        return next((truth for truth in (Truth.FAILED, Truth.UNDETERMINED) if truth in found), Truth.HELD)

    @staticmethod
    def any_of(truths: Iterable[Truth]) -> Truth:
        found = set(truths)
        return next((truth for truth in (Truth.HELD, Truth.UNDETERMINED) if truth in found), Truth.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment by two clocks: the wall clock, which may be wrong and may be set, and the kernel's clock of one boot."""

    time: float
    boot: str  # the kernel's id of the boot; empty if it is not known
    boot_seconds: float  # since that boot

    @property
    def booted(self) -> float:
        """When the boot began, by the wall clock of this moment."""
        return self.time - self.boot_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Bytes of one log, as a source hands them to the pipeline. They begin where the last consumed byte ended.

    `log` names the log for as long as it lives (it survives a rename and a restart); `origin` goes into incident ids
    and is the same in a replay: the path of a file, the boot id of a kernel ring.
    `line` is the 1-based number of the line that `offset` lies in. `numbers` are those of all its lines, where they do
    not simply count up from it: of records whose further lines are left out, and 0 for those that are in no file.
    `end` says what follows: `more` may come at once; `quiet`: nothing came for a while, so a last line without newline
    may be looked at (but may still grow); `final`: nothing will ever come, and all of it is to be consumed.
    `boot_time` is the wall time of the kernel clock's zero, for records that carry only that clock.
    `written_at` is when the last of it was written, where that is known and it was all there before it was looked at.
    `shares_node`: other jobs run on the node too, so a kernel line that names no job may be about one of those.
    """

    log: str
    origin: str
    path: str
    source: SourceKind
    format: LogFormat
    offset: int
    line: int
    data: bytes
    read_at: float
    end: Literal["more", "quiet", "final"] = "more"
    job: Job | None = None
    boot_time: float | None = None
    written_at: float | None = None
    shares_node: bool = False
    numbers: tuple[int, ...] | None = None

    @property
    def latest(self) -> float:
        """The latest time at which a line of it can have been written."""
        return self.read_at if self.written_at is None else min(self.read_at, self.written_at)


class Record(NamedTuple):
    """One decoded line: what its writer meant, without the prefixes that carriers put in front."""

    text: str
    time: float | None = None
    mono: float | None = None  # seconds of the kernel's clock
    rank: str | None = None
    host: str | None = None
    device: str | None = None  # PCI address from the kernel's DEVICE= field
    kernel: bool = False  # carries the mark of a kernel line (facility 0, `kernel:` tag, dmesg time)
    others: bool = False  # says that it is not the kernel's
    seq: int | None = None  # the kernel's own number of the record


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Whose log it is. `confidence` says how we know: `pattern` of the config, `slurm`, `kubernetes` or only the `path`.

    `owner` tells two jobs of one id apart: the user that owns the log, or, where a service account writes the logs of
    all, the folder that holds them. See `jobs.owned`.
    """

    id: str
    owner: str = ""
    kind: Literal["slurm", "kubernetes", "path"]
    user: str | None = None
    rank: str | None = None
    confidence: Literal["high", "medium", "low"] = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLine:
    """Where a context line was seen: enough to cite it as evidence later."""

    path: str
    line: int
    text: str
    captures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """What one log has told about its job so far: facts (library versions, environment) and context lines.

    A new value replaces an older one, so a match that holds the context of its moment holds facts *as of then*.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, ContextLine] = field(default_factory=dict)


NO_CONTEXT = LogContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One line (or a few adjoining ones) that shows a signature.

    In a flood it stands for the lines behind it as well: `lines` in all, the last of them at `until`, of `ranks`. They
    belong to its incident, in which enough earlier ones are kept whole. `line` is 0 for a record that is in no file: it
    has the kernel's number alone (`seq`).
    """

    signature: str
    source: SourceKind
    origin: str
    path: str
    line: int
    offset: int
    time: float
    time_source: TimeSource
    read_at: float
    text: str
    captures: Mapping[str, str] = field(default_factory=dict)
    gpu: str | None = None
    rank: str | None = None
    job: Job | None = None
    context: LogContext = NO_CONTEXT
    process: Mapping[str, str] = field(default_factory=dict)  # facts read of the process that it is about, or its job's
    lines: int = 1
    until: float | None = None
    ranks: frozenset[str] = frozenset()
    written_at: float | None = None  # as its chunk's
    shares_node: bool = False  # as its chunk's
    grave: bool = False  # of a kernel line that the vendor's table calls critical: an incident of its own
    named_job: str | None = None  # of a kernel line: the job of the process that it names, as `jobs.process_job` has it
    boot_seconds: float | None = None  # a kernel record's own stamp; its boot is `origin`
    seq: int | None = None  # the kernel's own number of the record

    @property
    def latest(self) -> float:
        """The latest time at which it can have been written."""
        return self.read_at if self.written_at is None else min(self.read_at, self.written_at)

    @property
    def last_time(self) -> float:
        return self.time if self.until is None else self.until

    @property
    def happened(self) -> float:
        """When it happened, as far as anyone can say: by the log's own stamp, else when it was read, or the latest that it
        can have been.
        """
        return self.time if self.time_source == "log" else self.latest

    @property
    def order(self) -> tuple[float, str, int, str]:
        """Sorts matches the same way whatever order they arrived in."""
        return (self.time, self.path, self.offset, self.signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """All matches of one signature in one episode: one fault, however many ranks print it.

    `scope` is a job, a log without a known job, or one boot of a kernel, where `gpu` tells faults apart too.
    `matches` holds the earliest few, in canonical order; `lines` counts all. `last_time` bounds the episode.
    `first_read` and `last_read` are when we learnt of it: it settles by the former and is let go by the latter.
    """

    scope: str
    signature: str
    gpu: str | None
    matches: tuple[Match, ...]
    lines: int
    last_time: float
    first_read: float
    last_read: float
    ranks: frozenset[str] = frozenset()
    grave: bool = False  # as its matches

    @property
    def first(self) -> Match:
        return self.matches[0]

    @property
    def key(self) -> tuple[str, str, str | None, bool]:
        return (self.scope, self.signature, self.gpu, self.grave)

    @property
    def order(self) -> tuple[float, str, int, str]:
        return self.first.order

    def captures(self) -> dict[str, str]:
        """Each capture as the earliest match that has it tells it."""
        return {name: value for match in reversed(self.matches) for name, value in match.captures.items()}
