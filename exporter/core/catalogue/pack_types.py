"""Signatures, root causes, vendor tables and packs: the schema of a pack file, and its values.

`signatures schema` prints the schema, and editors complete from it. pydantic reads the constraints in the annotations when
it validates a text (`pack_files.schema`); compiled packs load without it in milliseconds.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal

from exporter.core.catalogue.reports import SettledReport
from exporter.core.model import (
    OPERATOR_ACTIONS,
    UNRECOGNISED,
    Action,
    CrashKind,
    Domain,
    Layer,
    Reach,
    Restart,
    Role,
    Severity,
    SourceKind,
    Vendor,
    Verdict,
    implied_verdict,
    refuse_contradiction,
)
from exporter.core.text.problems import Loc
from exporter.core.values import dataclass, field

if TYPE_CHECKING:
    from exporter.core.catalogue.constraints import (
        Checked,
        FormerKey,
        GatedPattern,
        Id,
        IdGlob,
        Pattern,
        StrictBool,
        StrictFloat,
        StrictInt,
        VersionBound,
        about,
        or_text,
    )

MAX_LINES = 16  # of one pattern; the stack of a task that waits in NVIDIA's driver shows the driver in its 13th line
OPERATORS = ("equals", "in_", "matches", "exists", "version", "at_least")
SUBJECTS = ("all", "any", "not_", "fact", "capture", "job", "match", "text", "reported_by")

# Signals and exit codes of a process that somebody else ended.
FROM_OUTSIDE = frozenset({"Killed", "Terminated", "9", "15", "-9", "-15", "137", "143"})


class PackItem:
    """Anything in a pack. Unknown keys are errors."""

    __slots__ = ()
    __pydantic_config__ = {"extra": "forbid", "populate_by_name": True}  # noqa: RUF012 (as pydantic reads it)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(PackItem):
    """A line (or block) as its emitter prints it; it must match."""

    text: Annotated[str, about("the line, or several", min_length=1)]
    captures: Annotated[Mapping[str, str], about("required captures of the match")] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss(PackItem):
    """A similar text that must not match."""

    text: Annotated[str, about("the line, or several", min_length=1)]
    why: Annotated[str, about("what it is instead")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified(PackItem):
    """Anything with a unique id."""

    id: Id
    override: Annotated[StrictBool, about("in your own pack: replaces the built-in item with this id")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterned(Identified):
    """Anything with patterns for lines."""

    title: Annotated[str, about("one line, without a full stop", min_length=3, max_length=120)]
    sources: Annotated[tuple[SourceKind, ...], about("logs to search", min_length=1)] = ("job",)
    patterns: Annotated[
        tuple[Pattern, ...], about("any of these; written for the format that emits the line", min_length=1)
    ]
    lines: Annotated[
        StrictInt, about("the most adjacent lines that a pattern may span with \\n", ge=1, le=MAX_LINES)
    ] = 1
    unless: Annotated[tuple[Pattern, ...], about("lines that match one of these do not count")] = ()
    examples: Annotated[
        tuple[Annotated[Example, or_text(Example)], ...],
        about("a line (or block) of each wording, as its emitter prints it"),
    ] = ()
    near_misses: Annotated[
        tuple[Annotated[NearMiss, or_text(NearMiss)], ...], about("similar lines that must not match")
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated(Patterned):
    """Patterns that are searched in every block; each needs a literal for the prefilter."""

    patterns: Annotated[
        tuple[GatedPattern, ...], about("any of these; written for the format that emits the line", min_length=1)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoversLines(PackItem):
    """Covers the lines whose captures have the values of `where`; a missing capture counts as ""."""

    where: Annotated[
        Mapping[str, str],
        about("capture to its values, as in a table's row; without, every line of the signature counts"),
    ] = field(default_factory=dict)

    def covers(self, captures: Mapping[str, str]) -> bool:
        return all(is_one_of(captures.get(name, ""), values) for name, values in self.where.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryLine(CoversLines):
    """Lines of the kernel that show that something works again: they clear node faults."""

    kind: Annotated[
        Literal["gpu_reset", "driver_reload"],
        about(
            "gpu_reset: the GPU that the line names was reset; driver_reload: the driver was loaded for the GPU "
            "that the line names, else for all of the signature's vendor"
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathLine(CoversLines):
    """Lines that report the end of a process or of a job, whatever else became of it."""

    kind: Annotated[
        Literal["process", "signal", "stopped", "exit", "scheduler"],
        about(
            "process: a process died, so exit code 0 of its job does not make it a handled error; signal: the "
            "same, but the line has only the signal, no reason; stopped: a signal ended it, which exit code 0 makes harmless; "
            "exit: a launcher says that it failed, and no reason; scheduler: the scheduler ended the job, which explains its "
            "death"
        ),
    ]

    def is_of_its_own(self, captures: Mapping[str, str]) -> bool:
        """Whether the process may have ended by itself: nobody killed it from outside."""
        reasons = {captures.get(name) for name in ("signal", "code", "reason")} - {None}
        return self.kind != "scheduler" and bool(reasons or self.kind != "stopped") and not FROM_OUTSIDE & reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature(Gated):
    """How one kind of crash shows itself in a log."""

    patterns: Annotated[
        tuple[GatedPattern, ...],
        about(
            "any of these; written for the format that emits the line. Only `unrecognised_crash` has none: "
            "lines that have a crash shape are its"
        ),
    ] = ()
    vendor: Annotated[Vendor, about("vendor of the hardware; any: all vendors, or none")]
    layer: Annotated[Layer, about("the layer that prints it")]
    severity: Annotated[
        Severity, about("critical: hardware or node is lost; error: the job is lost; warning, info: it may continue")
    ]
    verdict: Annotated[Verdict | None, about("who must fix it if no cause is known; default: by the domain")] = None
    domain: Annotated[Domain, about("where a fault without a cause lies; unknown unless its reports agree")] = "unknown"
    restart: Annotated[Restart | None, about("without a cause; only where the domain would say something else")] = None
    role: Annotated[
        Role,
        about(
            "root: a fault of its own; confirmation: a second view of a fault, a fault of its own only if "
            "alone; cascade: a consequence of another fault, here or on a peer; context: explains others, never an incident"
        ),
    ] = "root"
    reach: Annotated[
        Literal["job", "node"],
        about(
            "of a line of the kernel. job: a user's program can provoke it, so each process has its own "
            "incident, and it never makes the node unfit; node: it is about a card or the node"
        ),
    ] = "node"
    trust: Annotated[
        Literal["kernel", "anyone"],
        about("kernel: only messages of the kernel count; anyone: also text that users wrote to the kernel log"),
    ] = "kernel"
    yields_to: Annotated[tuple[IdGlob, ...], about("signatures that win if they match the same line")] = ()
    follows: Annotated[tuple[IdGlob, ...], about("signatures that it is a consequence of, if nearby")] = ()
    recovery: Annotated[RecoveryLine | None, about("its lines clear node faults, see there")] = None
    death: Annotated[DeathLine | None, about("its lines report the end of a process or a job, see there")] = None
    repeats_within: Annotated[
        StrictFloat,
        about("of a state that is reported again and again: seconds of silence that end it. 0: as all", ge=0, le=3600),
    ] = 0.0
    counts: Annotated[
        Literal["always", "last"],
        about("last: an incident only where the log ends with the line; a program that goes on was not stopped by it"),
    ] = "always"
    undecided: Annotated[str, about("of a fault without a root cause: why its line cannot tell it, and what would")] = (
        ""
    )
    remediation: Annotated[str, about("what to do first if the cause is unknown")] = ""
    references: Annotated[tuple[str, ...], about("sources of the format or the meaning")] = ()
    status: Annotated[
        Literal["experimental", "stable", "deprecated"],
        about("experimental: the id may change; deprecated: it will be removed"),
    ] = "stable"
    since: Annotated[str, about("the first release of gpufault with it")] = "0.1.0"

    @property
    def usual_verdict(self) -> Verdict:
        """Who must fix it where no cause is known. What is a consequence or a user can provoke condemns nobody."""
        tells = self.role != "cascade" and not ("kernel" in self.sources and self.reach == "job")
        return self.verdict or (implied_verdict(self.domain, self.severity) if tells else "unclear")

    def check(self) -> None:
        if not self.patterns and self.id != UNRECOGNISED:
            raise ValueError("patterns: give at least one")
        refuse_contradiction(self.verdict, self.domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFact(Gated):
    """A fact in a job's own log: a library's version, an environment variable."""

    set: Annotated[
        Mapping[str, str],
        about("fact name to value; {group} is a capture, {group|minor} its first two version parts", min_length=1),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo(Patterned):
    """A line that quotes an error: a search, a listing, a test's name, a shell's echo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashShape(Gated):
    """A line that looks like a crash; an `unrecognised_crash` where no signature matches, and the log ends in it."""

    kind: Annotated[CrashKind | None, about("what died or printed the line; without, it is only counted")] = None
    ends_process: Annotated[StrictBool, about("the line says by itself that the process has ended")] = False
    reports_end: Annotated[
        StrictBool, about("a launcher reports that a process failed; what looked like a crash before it was one")
    ] = False
    reports_success: Annotated[
        StrictBool,
        about(
            "the program says that it ended well; what looked like a crash before it was handled, unless a "
            "launcher reports otherwise"
        ),
    ] = False
    reports_start: Annotated[
        StrictBool,
        about(
            "a launcher or the first rank reports that the program starts, once in a run; what follows a crash "
            "and this line is another crash"
        ),
    ] = False
    in_traceback: Annotated[
        StrictBool, about("the last line of a Python traceback; without its heading, as `needs_report`")
    ] = False
    needs_report: Annotated[
        StrictBool, about("counts only where a launcher soon reports that a process ended: as its last words")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(PackItem):
    """A tree of all, any and not. Set exactly one of all, any, not, fact, capture, job, match, text, reported_by."""

    all: Annotated[tuple[Annotated[Condition, Checked], ...] | None, about("all of these hold", min_length=1)] = None
    any: Annotated[
        tuple[Annotated[Condition, Checked], ...] | None, about("at least one of these holds", min_length=1)
    ] = None
    not_: Annotated[Annotated[Condition, Checked] | None, about("this does not hold", alias="not")] = None
    fact: Annotated[str | None, about("a fact of the job, else of the node")] = None
    capture: Annotated[str | None, about("a capture of the incident's matches")] = None
    job: Annotated[Literal["id", "user", "kind"] | None, about("a field of the job")] = None
    match: Annotated[IdGlob | None, about("another signature nearby, or earlier in the log")] = None
    text: Annotated[Pattern | None, about("words in a line of the incident")] = None
    reported_by: Annotated[Literal["kernel"] | None, about("kernel: the kernel's own log has the line")] = None
    equals: Annotated[str | None, about("equal to this")] = None
    in_: Annotated[tuple[str, ...] | None, about("one of these", alias="in", min_length=1)] = None
    matches: Annotated[Pattern | None, about("contains this regular expression")] = None
    exists: Annotated[StrictBool | None, about("whether it is known")] = None
    version: Annotated[VersionBound | None, about("such as '>=6.2, <7.2.1'")] = None
    at_least: Annotated[StrictFloat | None, about("at least this share of the capture `of`", gt=0, le=1)] = None
    of: Annotated[str | None, about("another capture; both are amounts of memory, such as `2.50 GiB`")] = None
    where: Annotated[Mapping[str, Pattern], about("of a match: patterns for its captures")] = field(
        default_factory=dict
    )
    if_unknown: Annotated[
        Literal["held", "failed"] | None, about("the result if the fact is unknown (default: undetermined)")
    ] = None
    why: Annotated[str, about("why this matters, as one clause")] = ""

    def check(self) -> None:
        subjects = [name for name in SUBJECTS if getattr(self, name)]
        if len(subjects) != 1:
            raise ValueError("give exactly one of all, any, not, fact, capture, job, match, text, reported_by")
        operators = [name for name in OPERATORS if getattr(self, name) is not None]
        if subjects[0] in ("fact", "capture", "job"):
            if len(operators) != 1:
                raise ValueError("give exactly one of equals, in, matches, exists, version, at_least")
        elif operators:
            raise ValueError(f"{operators[0].rstrip('_')} needs a fact, capture or job beside it")
        if bool(self.of) != (self.at_least is not None) or (self.of and not self.capture):
            raise ValueError("at_least and of belong together, beside a capture")
        if self.where and not self.match:
            raise ValueError("where needs a match beside it")
        if self.if_unknown and not self.fact:
            raise ValueError("if_unknown needs a fact beside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause(Identified):
    """A reason for crashes, as conditions over evidence. The most specific satisfied one applies."""

    title: Annotated[str, about("the cause in one line, without a full stop", min_length=3, max_length=160)]
    signatures: Annotated[tuple[IdGlob, ...], about("signatures that this can explain", min_length=1)]
    when: Annotated[
        Annotated[Condition, Checked] | None,
        about("required conditions; without them the cause is a possibility that is never chosen"),
    ] = None
    supported_by: Annotated[tuple[Annotated[Condition, Checked], ...], about("each that holds adds evidence")] = ()
    against: Annotated[tuple[Annotated[Condition, Checked], ...], about("each that holds removes evidence")] = ()
    verdict: Annotated[Verdict, about("who must fix it: infrastructure, workload, or unclear")]
    domain: Annotated[Domain, about("where the fault lies; docs/writing-signatures.md has the words")] = "unknown"
    restart: Annotated[Restart | None, about("only where the domain would say something else")] = None
    action: Annotated[
        Action | None,
        about("what a critical incident outside vendors' tables needs; node-check reports what operators have to do"),
    ] = None
    strength: Annotated[
        Literal["A", "B", "C", "D", "E"],
        about("A fixed upstream, B a maintainer's diagnosis, C several reports, D one report, E inferred"),
    ]
    remediation: Annotated[str, about("what to do first", min_length=3)]
    references: Annotated[tuple[str, ...], about("confirmations and reports of the cause")] = ()

    @property
    def needs_operator(self) -> bool:
        """Whether a critical incident of this cause makes the node unfit for jobs."""
        return self.action in OPERATOR_ACTIONS

    def check(self) -> None:
        if self.needs_operator and self.verdict != "infrastructure":
            raise ValueError(f"action: {self.action} needs verdict: infrastructure beside it")
        refuse_contradiction(self.verdict, self.domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow(CoversLines):
    """One row of a vendor's table."""

    where: Annotated[
        Mapping[str, str],
        about("captures, or `signature`, and their values: globs separated by | (default: all lines)"),
    ] = field(default_factory=dict)
    severity: Annotated[Severity, about("critical if and only if an operator must act")]
    scope: Annotated[Reach, about("affected part: the job, the GPU, the node, or the fabric between GPUs")]
    action: Annotated[
        Action, about("what to do first; node-check reports run_diagnostics, reset_gpu, reboot and replace")
    ]
    note: Annotated[str, about("meaning of the row, in one sentence")] = ""

    def check(self) -> None:
        if (self.severity == "critical") != (self.action in OPERATOR_ACTIONS):
            raise ValueError(
                "severity must be critical if and only if the action is run_diagnostics, reset_gpu, reboot or replace"
            )


def is_one_of(value: str, values: str) -> bool:
    """Whether a value matches one of the alternatives of `a|b*`."""
    exact, globs = _alternatives(values)
    return value in exact or any(fnmatch.fnmatchcase(value, glob) for glob in globs)


@cache
def _alternatives(values: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The plain values and the globs of `a|b*`."""
    alternatives = values.split("|")
    globs = tuple(value for value in alternatives if set("*?[") & set(value))
    return frozenset(alternatives) - set(globs), globs


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Identified):
    """A vendor's public table for the lines of some signatures. The first row that covers a line counts."""

    title: Annotated[str, about("subject of the table, without a full stop", min_length=3, max_length=120)]
    signatures: Annotated[tuple[IdGlob, ...], about("signatures that it covers", min_length=1)]
    references: Annotated[tuple[str, ...], about("sources of the rows", min_length=1)]
    read: Annotated[str, about("date of reading", pattern=r"^\d{4}-\d\d-\d\d$")]
    note: Annotated[str, about("how the vendor's words map to actions")] = ""
    rows: Annotated[
        tuple[Annotated[TableRow, Checked], ...], about("the first row that covers a line counts", min_length=1)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack(PackItem):
    """One pack file."""

    pack: Annotated[str, about("name of the pack; files may share it", pattern=r"^[a-z][a-z0-9_.-]{1,59}$")]
    signatures: Annotated[tuple[Annotated[Signature, Checked], ...], about("crashes and their lines in logs")] = ()
    root_causes: Annotated[tuple[Annotated[RootCause, FormerKey, Checked], ...], about("reasons for crashes")] = ()
    tables: Annotated[tuple[Table, ...], about("vendors' tables of severity and action")] = ()
    log_facts: Annotated[tuple[LogFact, ...], about("facts in a job's own log")] = ()
    echoes: Annotated[tuple[Echo, ...], about("lines that quote an error")] = ()
    crash_shapes: Annotated[
        tuple[CrashShape, ...], about("lines that look like crashes; counted if no signature matches")
    ] = ()
    reports: Annotated[tuple[Annotated[SettledReport, Checked], ...], about("settled public reports of crashes")] = ()


def leaf_conditions(cause: RootCause) -> Iterator[tuple[Loc, Condition]]:
    """Every leaf condition of a cause, with its location inside the cause."""
    stack: list[tuple[Loc, Condition]] = [(("when",), cause.when)] if cause.when else []
    stack += [((key, n), c) for key in ("supported_by", "against") for n, c in enumerate(getattr(cause, key))]
    while stack:
        loc, condition = stack.pop(0)
        for key in ("all", "any"):
            stack += [((*loc, key, n), child) for n, child in enumerate(getattr(condition, key) or ())]
        if condition.not_:
            stack.append(((*loc, "not"), condition.not_))
        elif not condition.all and not condition.any:
            yield loc, condition
