"""The values that flow through gpufault, from a chunk of bytes to an incident. All are frozen.

Only data: no parsing, no I/O, no clocks. Times are Unix seconds (float, UTC). Offsets and sizes are bytes. Lines count
from 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

from exporter.core.collectives import Waiting
from exporter.core.values import dataclass, field

Vendor = Literal["amd", "intel", "nvidia", "any"]
Layer = Literal["kernel", "runtime", "library", "framework", "fabric", "host"]
Severity = Literal["info", "warning", "error", "critical"]
Role = Literal["root", "confirmation", "cascade", "context"]
Verdict = Literal["infrastructure", "workload", "unclear"]
Domain = Literal[
    "hardware", "driver", "library", "mismatch", "configuration", "resources", "program", "network", "storage", "scheduler",
    "unknown",
]  # fmt: skip
DOMAIN_WORDS: Mapping[Domain, str] = {  # where a fault lies
    "hardware": "the hardware: a card, a link, power, the node",
    "driver": "the driver or firmware",
    "library": "a defect of a library, framework or serving engine",
    "mismatch": "versions or builds that do not fit each other or the GPU",
    "configuration": "settings of the job or the node",
    "resources": "too little memory, disk or time",
    "program": "the program or its input",
    "network": "the network",
    "storage": "a file system or a disk",
    "scheduler": "the batch system or whoever uses it",
    "unknown": "unknown",
}
INFRASTRUCTURE: frozenset[Domain] = frozenset({"hardware", "driver", "network", "storage"})
WORKLOAD: frozenset[Domain] = frozenset({"program", "resources"})
Restart = Literal["as_is", "elsewhere", "after_change", "never", "unknown"]
RESTART_WORDS: Mapping[Restart, str] = {  # how a job that crashed is worth a restart
    "as_is": "as it is",
    "elsewhere": "on other nodes",
    "after_change": "after a change",
    "never": "not at all: it was cancelled",
    "unknown": "unknown",
}
Reach = Literal["job", "gpu", "node", "fabric"]
Action = Literal["ignore", "restart_job", "run_diagnostics", "reset_gpu", "reboot", "replace"]  # mildest first
# What clears a node fault.
RecoveryKind = Literal["gpu_reset", "driver_reload", "reboot", "card_swap", "operator", "driver"]
SourceKind = Literal["job", "kernel"]
JobMethod = Literal[
    "path", "cgroup", "pid", "gpu", "owner", "header", "time"
]  # how a job was found; docs/attribution.md
Confidence = Literal["high", "medium", "low"]
TimeSource = Literal["log", "inherited", "file", "observed"]  # as in the journal
STAMPED = ("log", "inherited")  # the sources of times that the log itself tells
# Clocks differ by up to so much. What is further ahead of its reader's clock is a claim: anybody may write any time in a log.
AHEAD_SECONDS = 3600.0
LogFormat = Literal["plain", "cri", "docker", "kmsg"]

ACTIONS: tuple[Action, ...] = get_args(Action)
ACTION_WORDS: Mapping[Action, str] = {
    "ignore": "nothing",
    "restart_job": "restart the job",
    "run_diagnostics": "run diagnostics",
    "reset_gpu": "reset the GPU",
    "reboot": "reboot the node",
    "replace": "replace the part",
}
STRENGTHS = {
    "A": "confirmed and fixed upstream",
    "B": "documented or diagnosed by the vendor or project",
    "C": "reported by several",
    "D": "reported once",
    "E": "inferred",
}
OPERATOR_ACTIONS: frozenset[Action] = frozenset({"run_diagnostics", "reset_gpu", "reboot", "replace"})
MAX_KEPT_MATCHES = 10  # the earliest of an incident; an amdgpu page-fault block has 11 lines, the first ten suffice
UNKNOWN = "unknown"
PEER_FAILURE = "peer_failure"
CrashKind = Literal["python", "c++", "signal", "runtime", "driver"]
UNRECOGNISED = "unrecognised_crash"  # the signature of crashes that no other names
PYTHON_TRACEBACK = "python_traceback"
JOBS_ON_SM = "xid_13_jobs_on_sm"  # the only fact counted from kernel lines: see `repeated_xids`


def implied_verdict(domain: Domain, severity: Severity) -> Verdict:
    """Who must fix what lies in a domain. A library or setting may be the node's or the job's; a warning condemns nothing."""
    if domain in INFRASTRUCTURE:
        return "infrastructure" if severity in ("error", "critical") else "unclear"
    return "workload" if domain in WORKLOAD else "unclear"


def refuse_contradiction(verdict: Verdict | None, domain: Domain) -> None:
    """Raise ValueError if a verdict excludes the domain beside it."""
    excluded = "workload" if domain in INFRASTRUCTURE else "infrastructure" if domain == "program" else None
    if verdict and verdict == excluded:
        raise ValueError(f"verdict: {verdict} contradicts domain: {domain}")


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
        distinct = set(truths)
        return next((truth for truth in (Truth.FAILED, Truth.UNDETERMINED) if truth in distinct), Truth.HELD)

    @staticmethod
    def any_of(truths: Iterable[Truth]) -> Truth:
        distinct = set(truths)
        return next((truth for truth in (Truth.HELD, Truth.UNDETERMINED) if truth in distinct), Truth.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment by two clocks: the wall clock, which may be wrong or set, and the kernel's clock since its boot."""

    time: float
    boot: str  # the kernel's boot id; empty if unknown
    boot_seconds: float  # since that boot

    @property
    def booted(self) -> float:
        """The time of the boot by the wall clock."""
        return self.time - self.boot_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Unconsumed bytes of one log, from a source to the pipeline.

    `log` identifies the log across renames and restarts. `origin` is part of incident ids and the same in a replay: the
    path of a file, the boot id of a kernel log.
    `line` is the number of the line at `offset`. `numbers` lists all line numbers if they are not consecutive; records
    outside files have 0.
    `end`: `more` data may follow; `quiet`: a last line without newline may be matched, but may still grow; `final`: no
    more data will follow, and everything is to be consumed.
    `boot_time` is the wall time of the boot, for records with only the kernel's clock.
    `written_at` is the time of the last write, if known.
    `shares_node`: other jobs run on the node, so a kernel line without a job may concern one of them.
    `uid`: the log's owner, unless a service account writes the logs of many users.
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
    uid: int | None = None
    numbers: tuple[int, ...] | None = None

    @property
    def latest(self) -> float:
        """The latest possible time of its lines."""
        return self.read_at if self.written_at is None else min(self.read_at, self.written_at)


class Record(NamedTuple):
    """One decoded line: the text without prefixes, and the fields of the prefixes."""

    text: str
    time: float | None = None
    mono: float | None = None  # seconds of the kernel's clock
    rank: str | None = None
    host: str | None = None
    device: str | None = None  # PCI address from the kernel's DEVICE= field
    kernel: bool = False  # has a mark of kernel lines (facility 0, `kernel:` tag, dmesg time)
    by_others: bool = False  # is marked as written by a user program
    seq: int | None = None  # the kernel's number of the record


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job of a log or of a kernel line. `method` says how it was found, `confidence` how sure that is.

    `owner` tells two jobs of one id apart: the log's owner, or its folder if a service account writes all logs. See
    `jobs.with_owner`. `raw_id` is Slurm's own number of a task of an array, whose `id` is 100_3.
    """

    id: str
    owner: str = ""
    kind: Literal["slurm", "kubernetes", "path"]
    user: str | None = None
    rank: str | None = None
    confidence: Confidence = "low"
    method: JobMethod = "path"
    raw_id: str | None = None
    step: str | None = None
    account: str | None = None
    name: str | None = None
    pod_uid: str | None = None
    container: str | None = None  # its name in the pod, or its id
    restart: str | None = None  # how often the container was restarted


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLine:
    """A context line with its location, to cite as evidence later."""

    path: str
    line: int
    text: str
    captures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """The facts (library versions, environment) and context lines found in one log so far.

    New values replace old ones; each match keeps the context of its time.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, ContextLine] = field(default_factory=dict)


NO_CONTEXT = LogContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One line (or a few adjacent ones) that matches a signature.

    In a flood it represents the following lines too: `lines` in total, the last at `until`, from `ranks`. `line` is 0
    for kernel records outside files, which have only a number (`seq`).
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
    process: Mapping[str, str] = field(default_factory=dict)  # facts of its process or its job's processes
    lines: int = 1
    until: float | None = None
    ranks: frozenset[str] = frozenset()
    waiting: Waiting = ()  # where its ranks wait in a collective
    written_at: float | None = None  # as its chunk's
    shares_node: bool = False  # as its chunk's
    uid: int | None = None  # as its chunk's
    grave: bool = False  # a kernel line that the vendor's table calls critical: a separate incident
    claimed_time: float | None = None  # what the line says, where that is in the future
    named_job: str | None = None  # the job of its process, named as by `jobs.process_job`
    claims: tuple[Job, ...] = ()  # the jobs that the node names for it: see `diagnosis.attribution`
    boot_seconds: float | None = None  # timestamp of a kernel record; its boot is `origin`
    seq: int | None = None  # the kernel's number of the record
    # `pid 5600`, or a block of lines whose process is not known yet: see `matching.raising`. In a job's log `run 4711`: the
    # program was started again at that offset.
    raised_by: str | None = None
    closes: str | None = None  # the block that its process raised too
    # What it tells of earlier lines without a time: the one that they inherited, and until when they were written.
    untimed: tuple[float, float] | None = None

    @property
    def latest(self) -> float:
        """The latest possible time of the line."""
        return self.read_at if self.written_at is None else min(self.read_at, self.written_at)

    @property
    def last_time(self) -> float:
        return self.time if self.until is None else self.until

    @property
    def is_stamped(self) -> bool:
        """Whether the log tells the time of the line: in the line, or in one before it."""
        return self.time_source in STAMPED

    @property
    def happened(self) -> float:
        """The best known time: from the log, else the latest possible."""
        return self.time if self.is_stamped else self.latest

    @property
    def order(self) -> tuple[float, str, int, str]:
        """A sort key that does not depend on the order of arrival."""
        return (self.time, self.path, self.offset, self.signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """All matches of one signature in one episode: one fault, however many ranks print it.

    `scope` is a job, a log without a known job, or one boot of a kernel, where `gpu` and `raised_by` tell faults apart:
    the process of a fault that a user's program can provoke. `closes`: blocks of lines that its process raised too.
    `matches` holds the earliest few, sorted; `lines` counts all. `last_time` ends the episode.
    `first_read` and `last_read` are times of reading: it settles by the former and closes by the latter.
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
    waiting: Waiting = ()  # of all its lines
    grave: bool = False  # as its matches
    raised_by: str | None = None
    closes: frozenset[str] = frozenset()

    @property
    def first(self) -> Match:
        return self.matches[0]

    @property
    def key(self) -> tuple[str, str, str | None, bool, str | None]:
        return (self.scope, self.signature, self.gpu, self.grave, self.raised_by)

    @property
    def order(self) -> tuple[float, str, int, str]:
        return self.first.order

    def captures(self) -> dict[str, str]:
        """Each capture from the earliest match that has it."""
        return {name: value for match in reversed(self.matches) for name, value in match.captures.items()}
