"""The catalogue: all active packs joined, cross-checked, and compiled for the wheel.

`load_packs` reports every error of every file at once. The schema of a pack is in `pack_types`; the caller reads files.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from exporter.core.catalogue.pack_files import (
    PATTERNED,
    NamedText,
    PackFile,
    ReadPacks,
    clashes,
    names_one_of,
    read_packs,
)
from exporter.core.catalogue.pack_types import (
    CrashShape,
    Echo,
    LogFact,
    Pack,
    Patterned,
    RootCause,
    Signature,
    Table,
    TableRow,
    is_one_of,
    leaf_conditions,
)
from exporter.core.catalogue.reports import SettledReport
from exporter.core.model import ACTIONS, OPERATOR_ACTIONS, Incident, Severity
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.prefilter import NO_DATABASES, Databases
from exporter.core.patterns.required_literals import Gate, Needs, derive, needs
from exporter.core.patterns.syntax import spelt_out
from exporter.core.text.phrases import nearest
from exporter.core.text.problems import Document, InvalidInput, Loc, Problem
from exporter.core.values import dataclass, field, replace


@dataclass(frozen=True)  # without slots, for cached properties
class Catalogue:
    """All active packs; ids are unique."""

    signatures: Mapping[str, Signature]
    root_causes: Mapping[str, RootCause]
    log_facts: tuple[LogFact, ...]
    echoes: tuple[Echo, ...]
    crash_shapes: tuple[CrashShape, ...]
    pack_of: Mapping[str, str]
    gates: Mapping[str, frozenset[Gate]]  # of every gated pattern
    needs: Mapping[str, Needs] = field(default_factory=dict)  # of the patterns compiled before
    tables: tuple[Table, ...] = ()
    databases: Databases = NO_DATABASES  # of engines for the gates of the built-in packs
    reports: tuple[SettledReport, ...] = ()  # of the site's packs; the public ones are read when they are shown

    def expressions(self, patterns: Iterable[str]) -> tuple[Expression, ...]:
        """The searchable form of patterns."""
        return tuple(Expression(pattern, self.needs.get(pattern)) for pattern in patterns)

    def matching(self, globs: Iterable[str]) -> frozenset[str]:
        """The signature ids that match any of the globs."""
        return frozenset().union(*map(self._named_by, globs))

    def title(self, name: str) -> str:
        """The title of a root cause or a signature; the id itself if it is in no pack."""
        item = self.root_causes.get(name) or self.signatures.get(name)
        return item.title if item else name

    def causes_of(self, signature: str) -> list[RootCause]:
        """The root causes that can explain a signature."""
        return self._causes.get(signature, [])

    def table_row(self, incident: Incident) -> TableRow | None:
        """The row of the vendors' tables for an incident; of several, the one with the strongest action.

        What a user's program can provoke condemns no card, whatever the table asks for: the driver says so in another line.
        """
        rows = self._rows.get(incident.signature)
        if not rows:
            return None
        lines = ({**m.captures, "signature": incident.signature} for m in incident.matches)
        rows_of_lines = filter(None, (_first_row(rows, line) for line in lines))
        row = max(rows_of_lines, key=lambda row: ACTIONS.index(row.action), default=None)
        if row and row.action in OPERATOR_ACTIONS and self.signatures[incident.signature].reach == "job":
            return replace(row, severity="error", scope="job", action="restart_job")
        return row

    @cached_property
    def repeats(self) -> Mapping[str, float]:
        """By signature, the longest silence in seconds between two reports of one state that goes on."""
        return {name: s.repeats_within for name, s in self.signatures.items() if s.repeats_within}

    @cached_property
    def mixed_severity(self) -> frozenset[str]:
        """The signatures whose lines are partly critical by a vendor's table."""
        return frozenset(s for s, rows in self._rows.items() if len({row.severity == "critical" for row in rows}) > 1)

    def has_mixed_lines(self, signature: str) -> bool:
        """Whether a line of a signature may be critical by a vendor's table, and another not."""
        if self.signatures[signature].reach == "job":
            return False
        if signature not in self._mixed:
            self._mixed[signature] = signature in self.mixed_severity and len(set(self._severities(signature))) > 1
        return self._mixed[signature]

    @cached_property
    def _mixed(self) -> dict[str, bool]:
        return {}

    def _severities(self, signature: str) -> Iterator[bool]:
        """Whether lines are critical, by the rows that may be the first to cover one."""
        patterns = self.signatures[signature].patterns
        for row in self._rows[signature]:
            certain = True
            for name, values in row.where.items():
                captured = {signature} if name == "signature" else {spelt_out(pattern, name) for pattern in patterns}
                covered = {value is None or is_one_of(value, values) for value in captured}
                if covered == {False}:
                    break
                certain = certain and covered == {True} and None not in captured
            else:
                yield row.severity == "critical"
                if certain:
                    return
        yield False

    def is_critical_line(self, signature: str, captures: Mapping[str, str]) -> bool:
        """Whether a line is a critical one of a signature with mixed severity."""
        if signature not in self.mixed_severity or self.signatures[signature].reach == "job":
            return False
        row = _first_row(self._rows[signature], {**captures, "signature": signature})
        return row is not None and row.severity == "critical"

    def severity_of(self, incident: Incident) -> Severity:
        """The severity by the vendor's table, else by the signature."""
        row = self.table_row(incident)
        return row.severity if row else self.signatures[incident.signature].severity

    def follows(self, signature: str, other: str) -> bool:
        """Whether a signature is declared a consequence of another."""
        return other in self._followed[signature]

    def without(self, disabled: Iterable[str]) -> Catalogue:
        off = self.matching(disabled)
        return replace(self, signatures={i: s for i, s in self.signatures.items() if i not in off})

    def _named_by(self, glob: str) -> frozenset[str]:
        if glob not in self._named:
            is_id = set("*?").isdisjoint(glob)
            names = {glob} & self.signatures.keys() if is_id else fnmatch.filter(self.signatures, glob)
            self._named[glob] = frozenset(names)
        return self._named[glob]

    @cached_property
    def _named(self) -> dict[str, frozenset[str]]:
        return {}

    @cached_property
    def _causes(self) -> dict[str, list[RootCause]]:
        causes: dict[str, list[RootCause]] = {}
        for cause in self.root_causes.values():
            for signature in self.matching(cause.signatures):
                causes.setdefault(signature, []).append(cause)
        return causes

    @cached_property
    def _rows(self) -> dict[str, tuple[TableRow, ...]]:
        rows: dict[str, tuple[TableRow, ...]] = {}
        for table in self.tables:
            for signature in self.matching(table.signatures):
                rows[signature] = rows.get(signature, ()) + table.rows
        return rows

    @cached_property
    def _followed(self) -> dict[str, frozenset[str]]:
        return {signature.id: self.matching(signature.follows) for signature in self.signatures.values()}


@dataclass(frozen=True, slots=True)
class LoadedPacks:
    """The catalogue and its files: a site's own, and built-in ones unless compiled.

    With `problems`, they have only what is valid; `rejected` has the ids of the other signatures, "*" if any may be one.
    """

    catalogue: Catalogue
    own: tuple[PackFile, ...]
    builtin: tuple[PackFile, ...]
    problems: tuple[Problem, ...] = ()
    rejected: frozenset[str] = frozenset()

    def may_be_rejected(self, globs: Iterable[str]) -> bool:
        """Whether one of the globs may mean a rejected signature."""
        return any(names_one_of(glob, self.rejected) for glob in globs)


def load_packs(texts: Sequence[NamedText], builtin: Compiled | Sequence[NamedText] = ()) -> Catalogue:
    """As `load`; returns the catalogue only."""
    return load(texts, builtin).catalogue


def load(texts: Sequence[NamedText], builtin: Compiled | Sequence[NamedText] = ()) -> LoadedPacks:
    """Load (file name, YAML text) pairs on top of the built-in packs, which only `override` replaces.

    Raises InvalidInput with every problem of every file.
    """
    loaded = examine(texts, builtin)
    if loaded.problems:
        raise InvalidInput(loaded.problems)
    return loaded


def examine(
    texts: Sequence[NamedText], builtin: Compiled | Sequence[NamedText] = (), rejected: frozenset[str] = frozenset()
) -> LoadedPacks:
    """As `load`; returns the problems beside what is valid. rejected: what the files that could not be read may define."""
    compiled = builtin if isinstance(builtin, Compiled) else Compiled()
    if isinstance(builtin, Compiled):
        documents = [Document(f"builtin pack {pack.pack}", None, {}) for pack in builtin.packs]
        beneath = ReadPacks(tuple(map(PackFile, documents, builtin.packs)))
    else:
        beneath = read_packs(builtin)
    own = read_packs(texts)
    rejected |= beneath.rejected | own.rejected
    catalogue = _join([file.pack for file in (*beneath.files, *own.files)], compiled)
    read = own.files if isinstance(builtin, Compiled) else [*beneath.files, *own.files]
    problems = [*beneath.problems, *own.problems, *clashes(beneath.files, own.files)]
    problems += [problem for file in read for problem in _dangling(file, catalogue, rejected)]
    return LoadedPacks(
        catalogue, own.files, () if isinstance(builtin, Compiled) else beneath.files, tuple(problems), rejected
    )


def compile_packs(texts: Sequence[NamedText], databases: Databases = NO_DATABASES) -> bytes:
    """Checked packs for the wheel, without examples: the same bytes for the same packs.

    Equal gates and literals are one object, so the daemon keeps each once.
    """
    import pickle

    loaded = load(texts)
    searched = {
        p for f in loaded.own for kind in PATTERNED for i in getattr(f.pack, kind) for p in (*i.patterns, *i.unless)
    }
    shared: dict[Any, Any] = {}

    def once(items: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(shared.setdefault(item, item) for item in map(tuple, items))

    needed = {pattern: needs(pattern) for pattern in sorted(searched)}
    compiled = Compiled(
        packs=tuple(_without_examples(file.pack) for file in loaded.own),
        needs={p: one._replace(sets=once(one.sets), first=once(one.first)) for p, one in needed.items()},
        databases=dict(databases),
    )
    gates = {
        pattern: tuple(shared.setdefault(gate, gate) for gate in sorted(of))
        for pattern, of in sorted(loaded.catalogue.gates.items())
    }  # a set would be written in the order of this process
    return pickle.dumps((compiled, gates), protocol=5)


def load_compiled(data: bytes) -> Compiled:
    """Read what `compile_packs` wrote: a part of the wheel, as its code is."""
    import pickle

    compiled: Compiled
    compiled, gates = pickle.loads(data)  # noqa: S301
    return replace(compiled, gates={pattern: frozenset(of) for pattern, of in gates.items()})


@dataclass(frozen=True, slots=True)
class Compiled:
    """Checked packs, with the gates and needs of their patterns."""

    packs: tuple[Pack, ...] = ()
    gates: Mapping[str, frozenset[Gate]] = field(default_factory=dict)
    needs: Mapping[str, Needs] = field(default_factory=dict)
    databases: Databases = NO_DATABASES


def _first_row(rows: Iterable[TableRow], line: Mapping[str, str]) -> TableRow | None:
    return next((row for row in rows if row.covers(line)), None)


def _without_examples(pack: Pack) -> Pack:
    def less(items: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(item, examples=(), near_misses=()) for item in items)

    bare: dict[str, Any] = {kind: less(getattr(pack, kind)) for kind in PATTERNED}
    return replace(pack, reports=(), **bare)


def _join(packs: Sequence[Pack], compiled: Compiled) -> Catalogue:
    """Join packs; of two items with one id the later counts."""
    signatures = {s.id: s for p in packs for s in p.signatures}
    log_facts = {f.id: f for p in packs for f in p.log_facts}
    echoes = {e.id: e for p in packs for e in p.echoes}
    crash_shapes = {s.id: s for p in packs for s in p.crash_shapes}
    gated: list[Patterned] = [*signatures.values(), *log_facts.values(), *crash_shapes.values()]
    patterns = {pattern for item in gated for pattern in item.patterns}
    return Catalogue(
        gates={pattern: compiled.gates.get(pattern) or derive(pattern) for pattern in patterns},
        needs=compiled.needs,
        databases=compiled.databases,
        signatures=signatures,
        root_causes={c.id: c for p in packs for c in p.root_causes},
        log_facts=tuple(log_facts.values()),
        echoes=tuple(echoes.values()),
        crash_shapes=tuple(crash_shapes.values()),
        tables=tuple({t.id: t for p in packs for t in p.tables}.values()),
        reports=tuple(report for p in packs for report in p.reports),
        pack_of={item.id: p.pack for p in packs for items in (p.signatures, p.root_causes) for item in items},
    )


def _dangling(file: PackFile, catalogue: Catalogue, rejected: frozenset[str]) -> Iterator[Problem]:
    named: list[tuple[Loc, str]] = []
    for i, signature in enumerate(file.pack.signatures):
        named += [(("signatures", i, "yields_to", n), glob) for n, glob in enumerate(signature.yields_to)]
        named += [(("signatures", i, "follows", n), glob) for n, glob in enumerate(signature.follows)]
    for i, cause in enumerate(file.pack.root_causes):
        named += [(("root_causes", i, "signatures", n), glob) for n, glob in enumerate(cause.signatures)]
        named += [(("root_causes", i, *loc, "match"), leaf.match) for loc, leaf in leaf_conditions(cause) if leaf.match]
    for i, table in enumerate(file.pack.tables):
        named += [(("tables", i, "signatures", n), glob) for n, glob in enumerate(table.signatures)]
    named += [(("reports", i, "signature"), report.signature) for i, report in enumerate(file.pack.reports)]
    for loc, glob in named:
        if not catalogue.matching([glob]) and not names_one_of(glob, rejected):
            near = nearest(glob, catalogue.signatures)
            advice = f"did you mean {near}?" if near else "see `gpufault signatures list`"
            yield file.document.problem(loc, f"{glob!r} matches no signature of any pack; {advice}")
