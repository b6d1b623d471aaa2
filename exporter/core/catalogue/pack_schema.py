"""The schema of a pack file, as pydantic models: `signatures schema` prints it, and editors complete from it.

All other modules use the plain values of `pack_types`, so pydantic is imported only to read the text of a pack.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import regex
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from exporter.core.catalogue import pack_types
from exporter.core.catalogue.pack_types import MAX_LINES
from exporter.core.model import (
    OPERATOR_ACTIONS,
    UNRECOGNISED,
    Action,
    CrashKind,
    Layer,
    Reach,
    Role,
    Severity,
    SourceKind,
    Vendor,
    Verdict,
)
from exporter.core.patterns import required_literals, syntax
from exporter.core.patterns.syntax import FLAGS
from exporter.core.text.versions import VersionRange

MAX_CHECKED = 4096  # patterns that are checked once a process; the built-in packs have 1,800
OPERATORS = ("equals", "in_", "matches", "exists", "version", "at_least")
SUBJECTS = ("all", "any", "not_", "fact", "capture", "job", "match", "text", "reported_by")


@lru_cache(MAX_CHECKED)
def _compiles(pattern: str) -> str:
    if why := syntax.refusal(pattern):
        raise ValueError(why)
    try:
        regex.compile(pattern, FLAGS)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"invalid regular expression: {error}; use the syntax of re") from None
    return pattern


def _has_gate(pattern: str) -> str:
    required_literals.derive(pattern)  # raises NoGate, which says what to do
    return pattern


def _is_range(text: str) -> str:
    VersionRange.parse(text)
    return text


def _example(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


Id = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_]{2,79}$", description="short snake_case name, unique over all packs")
]
IdGlob = Annotated[str, Field(pattern=r"^[a-z0-9_*?]{2,80}$", description="an id, or a glob over ids such as nv_xid_*")]
Pattern = Annotated[str, AfterValidator(_compiles), Field(description="regular expression, searched in a decoded line")]


class PackModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Example(PackModel):
    """A line (or block) as its emitter prints it; it must match."""

    text: str = Field(min_length=1, description="the line, or several")
    captures: dict[str, str] = Field(default_factory=dict, description="required captures of the match")


class NearMiss(PackModel):
    """A similar text that must not match."""

    text: str = Field(min_length=1, description="the line, or several")
    why: str = Field(default="", description="what it is instead")


Text = Annotated[str, Field(min_length=1)]
Examples = Annotated[
    list[Annotated[Example, BeforeValidator(_example, json_schema_input_type=Text | Example)]],
    Field(default_factory=list, description="a line (or block) of each wording, as its emitter prints it"),
]
NearMisses = Annotated[
    list[Annotated[NearMiss, BeforeValidator(_example, json_schema_input_type=Text | NearMiss)]],
    Field(default_factory=list, description="similar lines that must not match"),
]


class Identified(PackModel):
    """Anything with an id."""

    id: Id
    override: bool = Field(
        default=False,
        description="in your own pack: replaces the built-in item with this id",
    )


class Patterned(Identified):
    """Anything with patterns for lines."""

    title: str = Field(min_length=3, max_length=120, description="one line, without a full stop")
    sources: list[SourceKind] = Field(default=["job"], min_length=1, description="logs to search")
    patterns: list[Pattern] = Field(
        min_length=1, description="any of these; written for the format that emits the line"
    )
    lines: int = Field(
        default=1, ge=1, le=MAX_LINES, description="the most adjacent lines that a pattern may span with \\n"
    )
    unless: list[Pattern] = Field(default_factory=list, description="lines that match one of these do not count")
    examples: Examples
    near_misses: NearMisses


class Gated(Patterned):
    """Patterns that are searched in every block; each needs a literal for the prefilter."""

    patterns: list[Annotated[Pattern, AfterValidator(_has_gate)]] = Field(
        min_length=1, description="any of these; written for the format that emits the line"
    )


class RecoveryLine(PackModel):
    """Lines of the kernel that show that something works again: they clear node faults."""

    kind: Literal["gpu_reset", "driver_reload"] = Field(
        description="gpu_reset: the GPU that the line names was reset; driver_reload: the driver was loaded for the GPU that "
        "the line names, else for all of the signature's vendor"
    )
    where: dict[str, str] = Field(
        default_factory=dict, description="capture to its values, as in a table's row; without, every line shows it"
    )


class DeathLine(PackModel):
    """Lines that report the end of a process or of a job, whatever else became of it."""

    kind: Literal["process", "signal", "stopped", "exit", "scheduler"] = Field(
        description="process: a process died, so exit code 0 of its job does not make it a handled error; signal: the same, "
        "but the line has only the signal, no reason; stopped: a signal ended it, which exit code 0 makes harmless; exit: "
        "a launcher says that it failed, and no reason; scheduler: the scheduler ended the job, which explains its death"
    )
    where: dict[str, str] = Field(
        default_factory=dict, description="capture to its values, as in a table's row; without, every line reports it"
    )


class Signature(Gated):
    """How one kind of crash shows itself in a log."""

    patterns: list[Annotated[Pattern, AfterValidator(_has_gate)]] = Field(
        default_factory=list,
        description="any of these; written for the format that emits the line. Only `unrecognised_crash` has none: lines "
        "that have a crash shape are its",
    )
    vendor: Vendor = Field(description="vendor of the hardware; any: all vendors, or none")
    layer: Layer = Field(description="the layer that prints it")
    severity: Severity = Field(
        description="critical: the hardware or the node is lost; error: the job is lost; warning, info: the job may continue"
    )
    verdict: Verdict = Field(
        default="unclear",
        description="who must fix it where no cause is known; unclear, unless each cause of it has the same verdict",
    )
    role: Role = Field(
        default="root",
        description="root: a fault of its own; confirmation: a second view of a fault, a fault of its own only if alone; "
        "cascade: a consequence of another fault, here or on a peer; context: explains others, never an incident",
    )
    reach: Literal["job", "node"] = Field(
        default="node",
        description="of a line of the kernel. job: a user's program can provoke it, so each process has its own incident, and "
        "it never makes the node unfit; node: it is about a card or the node",
    )
    trust: Literal["kernel", "anyone"] = Field(
        default="kernel",
        description="kernel: only messages of the kernel count; anyone: also text that users wrote to the kernel log",
    )
    yields_to: list[IdGlob] = Field(default_factory=list, description="signatures that win if they match the same line")
    follows: list[IdGlob] = Field(default_factory=list, description="signatures that it is a consequence of, if nearby")
    recovery: RecoveryLine | None = Field(default=None, description="its lines clear node faults, see there")
    death: DeathLine | None = Field(
        default=None, description="its lines report the end of a process or a job, see there"
    )
    repeats_within: float = Field(
        default=0.0,
        ge=0,
        le=3600,
        description="seconds, for a state that goes on and is reported again and again: reports with less silence between "
        "them are one incident. 0: the window of all incidents",
    )
    counts: Literal["always", "last"] = Field(
        default="always",
        description="last: a line is an incident only where its log ends with it; a program that goes on was not stopped by it",
    )
    remediation: str = Field(default="", description="what to do first if the cause is unknown")
    references: list[str] = Field(default_factory=list, description="sources of the format or the meaning")
    status: Literal["experimental", "stable", "deprecated"] = Field(
        default="stable", description="experimental: the id may change; deprecated: it will be removed"
    )
    since: str = Field(default="0.1.0", description="the first release of gpufault with it")

    @model_validator(mode="after")
    def _has_patterns(self) -> Self:
        if not self.patterns and self.id != UNRECOGNISED:
            raise ValueError("patterns: give at least one")
        return self


class LogFact(Gated):
    """A fact in a job's own log: a library's version, an environment variable."""

    set: dict[str, str] = Field(
        min_length=1, description="fact name to value; {group} is a capture, {group|minor} its first two version parts"
    )


class Echo(Patterned):
    """A line that quotes an error: a search, a listing, a test's name, a shell's echo."""


class CrashShape(Gated):
    """A line that looks like a crash; an `unrecognised_crash` where no signature matches, and the log ends in it."""

    kind: CrashKind | None = Field(
        default=None, description="what died or printed the line; without, it is only counted"
    )
    ends_process: bool = Field(default=False, description="the line says by itself that the process has ended")
    reports_end: bool = Field(
        default=False,
        description="a launcher reports that a process failed; what looked like a crash before it was one",
    )
    reports_success: bool = Field(
        default=False,
        description="the program says that it ended well; what looked like a crash before it was handled, unless a launcher "
        "reports otherwise",
    )
    reports_start: bool = Field(
        default=False,
        description="a launcher or the first rank reports that the program starts, once in a run; what follows a crash and "
        "this line is another crash",
    )
    in_traceback: bool = Field(
        default=False, description="the last line of a Python traceback; without its heading, as `needs_report`"
    )
    needs_report: bool = Field(
        default=False, description="counts only where a launcher soon reports that a process ended: as its last words"
    )


class Condition(PackModel):
    """A tree of all, any and not. Set exactly one of all, any, not, fact, capture, job, match, text, reported_by."""

    all: list[Condition] | None = Field(default=None, min_length=1, description="all of these hold")
    any: list[Condition] | None = Field(default=None, min_length=1, description="at least one of these holds")
    not_: Condition | None = Field(default=None, alias="not", description="this does not hold")
    fact: str | None = Field(default=None, description="a fact of the job, else of the node")
    capture: str | None = Field(default=None, description="a capture of the incident's matches")
    job: Literal["id", "user", "kind"] | None = Field(default=None, description="a field of the job")
    match: IdGlob | None = Field(default=None, description="another signature nearby, or earlier in the log")
    text: Pattern | None = Field(default=None, description="words in a line of the incident")
    reported_by: Literal["kernel"] | None = Field(default=None, description="kernel: the kernel's own log has the line")

    equals: str | None = Field(default=None, description="equal to this")
    in_: list[str] | None = Field(default=None, alias="in", min_length=1, description="one of these")
    matches: Pattern | None = Field(default=None, description="contains this regular expression")
    exists: bool | None = Field(default=None, description="whether it is known")
    version: Annotated[str, AfterValidator(_is_range)] | None = Field(
        default=None, description="such as '>=6.2, <7.2.1'"
    )
    at_least: float | None = Field(default=None, gt=0, le=1, description="at least this share of the capture `of`")
    of: str | None = Field(default=None, description="another capture; both are amounts of memory, such as `2.50 GiB`")

    where: dict[str, Pattern] = Field(default_factory=dict, description="of a match: patterns for its captures")
    if_unknown: Literal["held", "failed"] | None = Field(
        default=None, description="the result if the fact is unknown (default: undetermined)"
    )
    why: str = Field(default="", description="why this matters, as one clause")

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
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
        return self


class RootCause(Identified):
    """A reason for crashes, as conditions over evidence. The most specific satisfied one applies."""

    title: str = Field(min_length=3, max_length=160, description="the cause in one line, without a full stop")
    signatures: list[IdGlob] = Field(min_length=1, description="signatures that this can explain")
    when: Condition | None = Field(
        default=None, description="required conditions; without them the cause is a possibility that is never chosen"
    )
    supported_by: list[Condition] = Field(default_factory=list, description="optional; each that holds adds evidence")
    against: list[Condition] = Field(default_factory=list, description="each that holds removes evidence")
    verdict: Verdict = Field(description="who must fix it: infrastructure, workload, or unclear")
    action: Action | None = Field(
        default=None,
        description="action for a critical incident outside vendors' tables; node-check reports run_diagnostics, "
        "reset_gpu, reboot and replace",
    )
    strength: Literal["A", "B", "C", "D", "E"] = Field(
        description="A confirmed and fixed upstream, B a maintainer's diagnosis, C several reports, D one report, E inferred"
    )
    remediation: str = Field(min_length=3, description="what to do first")
    references: list[str] = Field(default_factory=list, description="confirmations and reports of the cause")

    @model_validator(mode="before")
    @classmethod
    def _read_the_former_key(cls, data: Any) -> Any:
        """Accept `needs_operator: true`, which `action` replaced."""
        if not isinstance(data, dict) or not isinstance(data.get("needs_operator"), bool):
            return data
        rest = {name: value for name, value in data.items() if name != "needs_operator"}
        return {"action": "run_diagnostics", **rest} if data["needs_operator"] else rest

    @model_validator(mode="after")
    def _operators_repair_the_infrastructure(self) -> Self:
        if self.action in OPERATOR_ACTIONS and self.verdict != "infrastructure":
            raise ValueError(f"action: {self.action} needs verdict: infrastructure beside it")
        return self


class TableRow(PackModel):
    """One row of a vendor's table."""

    where: dict[str, str] = Field(
        default_factory=dict,
        description="captures, or `signature`, and their values: globs separated by | (default: all lines)",
    )
    severity: Severity = Field(description="critical if and only if an operator must act")
    scope: Reach = Field(description="affected part: the job, the GPU, the node, or the fabric between GPUs")
    action: Action = Field(
        description="what to do first; node-check reports run_diagnostics, reset_gpu, reboot and replace"
    )
    note: str = Field(default="", description="meaning of the row, in one sentence")

    @model_validator(mode="after")
    def _critical_is_what_needs_an_operator(self) -> Self:
        if (self.severity == "critical") != (self.action in OPERATOR_ACTIONS):
            raise ValueError(
                "severity must be critical if and only if the action is run_diagnostics, reset_gpu, reboot or replace"
            )
        return self


class Table(Identified):
    """A vendor's public table for the lines of some signatures. The first row that covers a line counts."""

    title: str = Field(min_length=3, max_length=120, description="subject of the table, without a full stop")
    signatures: list[IdGlob] = Field(min_length=1, description="signatures that it covers")
    references: list[str] = Field(min_length=1, description="sources of the rows")
    read: str = Field(pattern=r"^\d{4}-\d\d-\d\d$", description="date of reading")
    note: str = Field(default="", description="how the vendor's words map to actions")
    rows: list[TableRow] = Field(min_length=1, description="the first row that covers a line counts")


class Pack(PackModel):
    """One pack file."""

    pack: str = Field(pattern=r"^[a-z][a-z0-9_.-]{1,59}$", description="name of the pack; files may share it")
    signatures: list[Signature] = Field(default_factory=list, description="crashes and their lines in logs")
    root_causes: list[RootCause] = Field(default_factory=list, description="reasons for crashes")
    tables: list[Table] = Field(default_factory=list, description="vendors' tables of severity and action")
    log_facts: list[LogFact] = Field(default_factory=list, description="facts in a job's own log")
    echoes: list[Echo] = Field(default_factory=list, description="lines that quote an error")
    crash_shapes: list[CrashShape] = Field(
        default_factory=list, description="lines that look like crashes; counted if no signature matches"
    )

    def to_plain(self) -> pack_types.Pack:
        """The pack as a plain value."""
        written = self.model_dump(by_alias=True, exclude_defaults=True)
        pack: pack_types.Pack = pack_types.from_data(pack_types.Pack, written)
        return pack
