"""What a signature, a root cause and a pack are, once they have been read and checked.

Plain values that load in milliseconds; what they may hold, and what it means, is in `signatures`, their schema.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from exporter.core.model import OPERATOR_ACTIONS, Action, Layer, Reach, Role, Severity, SourceKind, Vendor, Verdict
from exporter.core.text.problems import Loc

MAX_LINES = 12  # that a pattern may span; the longest block known is amdgpu's page fault with 11 lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text that is matched, with the captures that it gives."""

    text: str
    captures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A text that is not matched, and why not."""

    text: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """What has a name that is its alone."""

    id: str
    override: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterned(Identified):
    """What everything that looks at lines has in common."""

    title: str
    sources: tuple[SourceKind, ...] = ("job",)
    patterns: tuple[str, ...]
    lines: int = 1
    unless: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature(Patterned):
    """How one kind of crash shows itself in a log."""

    vendor: Vendor
    layer: Layer
    severity: Severity
    role: Role = "root"
    trust: Literal["kernel", "anyone"] = "kernel"
    yields_to: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    remediation: str = ""
    references: tuple[str, ...] = ()
    status: Literal["experimental", "stable", "deprecated"] = "stable"
    since: str = "0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFact(Patterned):
    """A fact that a job's own log tells about its stack."""

    set: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo(Patterned):
    """A line that quotes an error instead of raising it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashShape(Patterned):
    """What a crash looks like to someone who knows no signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A tree of all/any/not over what is known. Exactly one of all, any, not_, fact, capture, job, match."""

    all: tuple[Condition, ...] | None = None
    any: tuple[Condition, ...] | None = None
    not_: Condition | None = None
    fact: str | None = None
    capture: str | None = None
    job: Literal["id", "user", "kind"] | None = None
    match: str | None = None
    equals: str | None = None
    in_: tuple[str, ...] | None = None
    matches: str | None = None
    exists: bool | None = None
    version: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    if_unknown: Literal["held", "failed"] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause(Identified):
    """Why a crash happened, as conditions over evidence."""

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
        """Whether a critical incident of this cause leaves the node unfit for jobs."""
        return self.action in OPERATOR_ACTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row of a vendor's table: which lines it is about, how bad they are, and what to do."""

    where: Mapping[str, str] = field(default_factory=dict)
    severity: Severity
    scope: Reach
    action: Action
    note: str = ""

    def covers(self, captures: Mapping[str, str]) -> bool:
        """Whether each capture is one of the values that the row names; a capture that is missing is "" here."""
        return all(_is_one_of(captures.get(name, ""), values) for name, values in self.where.items())


def _is_one_of(value: str, values: str) -> bool:
    exact, globs = _alternatives(values)
    return value in exact or any(fnmatch.fnmatchcase(value, glob) for glob in globs)


@cache
def _alternatives(values: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The values that `a|b*` names, those that are globs apart."""
    alternatives = values.split("|")
    globs = tuple(one for one in alternatives if set("*?[") & set(one))
    return frozenset(alternatives) - set(globs), globs


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Identified):
    """What a vendor's public table says of the lines of some signatures. The first row that covers a line counts."""

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
    """Every leaf condition of a cause, its supports and counters included, with its place inside the cause."""
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
    """A value as a pack's file writes it: what is as it is by default is left out."""
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
    """What `as_written` was given, if it was of this kind."""
    return kind(**{_OF_WORDS.get(name, name): _read(name, item) for name, item in data.items()})


_OF_WORDS = {"not": "not_", "in": "in_"}
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
    **dict.fromkeys(("when", "supported_by", "against", "all", "any", "not"), Condition),
}


def _read(name: str, item: Any) -> Any:
    if isinstance(item, list):  # a cause names signatures, a pack holds them
        return tuple(_read(name, one) for one in item)
    return from_data(_PARTS[name], item) if isinstance(item, dict) and name in _PARTS else item
