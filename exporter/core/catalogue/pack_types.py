"""Signatures, root causes, vendor tables and packs, as plain values that load in milliseconds.

`pack_schema` says what each field may hold and what it means.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from exporter.core.model import (
    OPERATOR_ACTIONS,
    Action,
    CrashKind,
    Layer,
    Reach,
    RecoveryKind,
    Role,
    Severity,
    SourceKind,
    Vendor,
    Verdict,
)
from exporter.core.text.problems import Loc
from exporter.core.values import dataclass, field

MAX_LINES = 16  # of one pattern; the stack of a task that waits in NVIDIA's driver shows the driver in its 13th line


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text that must match, and its captures."""

    text: str
    captures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A text that must not match, and why."""

    text: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """Anything with a unique id."""

    id: str
    override: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterned(Identified):
    """Anything with patterns for lines."""

    title: str
    sources: tuple[SourceKind, ...] = ("job",)
    patterns: tuple[str, ...]
    lines: int = 1
    unless: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()


def covers(where: Mapping[str, str], captures: Mapping[str, str]) -> bool:
    """Whether all captures have values of `where`; a missing capture counts as ""."""
    return all(_is_one_of(captures.get(name, ""), values) for name, values in where.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryLine:
    """What the lines of a signature show to work again; with `where`, only those lines."""

    kind: RecoveryKind
    where: Mapping[str, str] = field(default_factory=dict)

    def covers(self, captures: Mapping[str, str]) -> bool:
        return covers(self.where, captures)


# Signals and exit codes of a process that somebody else ended.
FROM_OUTSIDE = frozenset({"Killed", "Terminated", "9", "15", "-9", "-15", "137", "143"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathLine:
    """What the lines of a signature report of an end; with `where`, only those lines."""

    kind: Literal["process", "signal", "stopped", "exit", "scheduler"]
    where: Mapping[str, str] = field(default_factory=dict)

    def covers(self, captures: Mapping[str, str]) -> bool:
        return covers(self.where, captures)

    def is_of_its_own(self, captures: Mapping[str, str]) -> bool:
        """Whether the process may have ended by itself: nobody killed it from outside."""
        said = {captures.get(name) for name in ("signal", "code", "reason")} - {None}
        return self.kind != "scheduler" and bool(said or self.kind != "stopped") and not FROM_OUTSIDE & said


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature(Patterned):
    """One kind of crash and its lines in a log."""

    patterns: tuple[str, ...] = ()
    vendor: Vendor
    layer: Layer
    severity: Severity
    verdict: Verdict = "unclear"
    role: Role = "root"
    reach: Literal["job", "node"] = "node"
    trust: Literal["kernel", "anyone"] = "kernel"
    yields_to: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    recovery: RecoveryLine | None = None
    death: DeathLine | None = None
    repeats_within: float = 0.0
    counts: Literal["always", "last"] = "always"
    remediation: str = ""
    references: tuple[str, ...] = ()
    status: Literal["experimental", "stable", "deprecated"] = "stable"
    since: str = "0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFact(Patterned):
    """A fact in a job's own log."""

    set: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo(Patterned):
    """A line that quotes an error instead of raising it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashShape(Patterned):
    """A line that looks like a crash; an `unrecognised_crash` where no signature matches, and the log ends in it.

    Without a `kind` it is only counted. `ends_process`: it says so by itself.
    `in_traceback`: it counts as the last line of a Python traceback. `needs_report`: it counts where a launcher reports
    the end of a process behind it, as the last words of that process; so does an exception without its traceback.
    `reports_end`: what looked like a crash before it was one. `reports_success`: it was handled. `reports_start`: what
    crashed before it is another crash than what comes.
    """

    kind: CrashKind | None = None
    ends_process: bool = False
    in_traceback: bool = False
    needs_report: bool = False
    reports_end: bool = False
    reports_success: bool = False
    reports_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A tree of all, any and not over facts, captures, jobs, matches and texts; exactly one of them is set."""

    all: tuple[Condition, ...] | None = None
    any: tuple[Condition, ...] | None = None
    not_: Condition | None = None
    fact: str | None = None
    capture: str | None = None
    job: Literal["id", "user", "kind"] | None = None
    match: str | None = None
    text: str | None = None
    reported_by: SourceKind | None = None
    equals: str | None = None
    in_: tuple[str, ...] | None = None
    matches: str | None = None
    exists: bool | None = None
    version: str | None = None
    at_least: float | None = None
    of: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    if_unknown: Literal["held", "failed"] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause(Identified):
    """A reason for crashes, as conditions over evidence."""

    title: str
    signatures: tuple[str, ...]
    when: Condition | None = None
    supported_by: tuple[Condition, ...] = ()
    against: tuple[Condition, ...] = ()
    verdict: Verdict
    action: Action | None = None
    strength: Literal["A", "B", "C", "D", "E"]
    remediation: str
    references: tuple[str, ...] = ()

    @property
    def needs_operator(self) -> bool:
        """Whether a critical incident of this cause makes the node unfit for jobs."""
        return self.action in OPERATOR_ACTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row of a vendor's table: its lines, their severity and the action."""

    where: Mapping[str, str] = field(default_factory=dict)
    severity: Severity
    scope: Reach
    action: Action
    note: str = ""

    def covers(self, captures: Mapping[str, str]) -> bool:
        return covers(self.where, captures)


def _is_one_of(value: str, values: str) -> bool:
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

    title: str
    signatures: tuple[str, ...]
    references: tuple[str, ...]
    read: str
    note: str = ""
    rows: tuple[TableRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One pack file."""

    pack: str
    signatures: tuple[Signature, ...] = ()
    root_causes: tuple[RootCause, ...] = ()
    tables: tuple[Table, ...] = ()
    log_facts: tuple[LogFact, ...] = ()
    echoes: tuple[Echo, ...] = ()
    crash_shapes: tuple[CrashShape, ...] = ()


def leaf_conditions(cause: RootCause) -> Iterator[tuple[Loc, Condition]]:
    """Every leaf condition of a cause, with its location inside the cause."""
    stack: list[tuple[Loc, Condition]] = [(("when",), cause.when)] if cause.when else []
    stack += [(("supported_by", n), c) for n, c in enumerate(cause.supported_by)]
    stack += [(("against", n), c) for n, c in enumerate(cause.against)]
    while stack:
        loc, condition = stack.pop(0)
        for key in ("all", "any"):
            stack += [((*loc, key, n), child) for n, child in enumerate(getattr(condition, key) or ())]
        if condition.not_:
            stack.append(((*loc, "not"), condition.not_))
        elif not condition.all and not condition.any:
            yield loc, condition


def to_data(value: Any) -> Any:
    """A value as data of a pack file, without defaults."""
    from dataclasses import MISSING, fields, is_dataclass  # only for who compiles packs

    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    if not is_dataclass(value):
        return value
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(value)}
    return {
        name.rstrip("_"): to_data(getattr(value, name))
        for name, default in defaults.items()
        if getattr(value, name) != default
    }


def from_data(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """The inverse of `to_data` for a type."""
    return kind(**{_FIELDS.get(name, name): _read(name, item) for name, item in data.items()})


_FIELDS = {"not": "not_", "in": "in_"}
_PARTS: Mapping[str, type[Any]] = {
    "packs": Pack,
    "signatures": Signature,
    "root_causes": RootCause,
    "tables": Table,
    "rows": TableRow,
    "log_facts": LogFact,
    "echoes": Echo,
    "crash_shapes": CrashShape,
    "examples": Example,
    "near_misses": NearMiss,
    "recovery": RecoveryLine,
    "death": DeathLine,
    **dict.fromkeys(("when", "supported_by", "against", "all", "any", "not"), Condition),
}


def _read(name: str, item: Any) -> Any:
    kind = _PARTS.get(name)
    if isinstance(item, list):
        if kind is None:
            return tuple(item)
        return tuple(from_data(kind, each) if isinstance(each, dict) else each for each in item)  # a cause has names
    return from_data(kind, item) if kind and isinstance(item, dict) else item
