"""All packs in force as one catalogue: how packs are joined, held against each other, and compiled for the wheel.

`load_packs` reports every error of every file as `file:line:col: key: what, then what to do`, all at once. What a pack
may hold is in `signatures`; files are read by the caller.
"""

from __future__ import annotations

import fnmatch
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from exporter.core.catalogue.pack_types import (
    CrashShape,
    Echo,
    Identified,
    LogFact,
    Pack,
    Patterned,
    RootCause,
    Signature,
    Table,
    TableRow,
    from_data,
    leaf_conditions,
    to_data,
)
from exporter.core.model import ACTIONS, Incident, Severity
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.required_literals import Gate, Needs, derive, needs
from exporter.core.text.problems import Document, InvalidInput, Loc, Problem


@dataclass(frozen=True)  # without slots: what is derived from globs is derived once
class Catalogue:
    """All packs in force, with ids unique over them."""

    signatures: Mapping[str, Signature]
    root_causes: Mapping[str, RootCause]
    log_facts: tuple[LogFact, ...]
    echoes: tuple[Echo, ...]
    crash_shapes: tuple[CrashShape, ...]
    pack_of: Mapping[str, str]
    gates: Mapping[str, frozenset[Gate]]  # of every pattern that a line is tried for
    needs: Mapping[str, Needs] = field(default_factory=dict)  # of any pattern, as far as they are known
    tables: tuple[Table, ...] = ()

    def expressions(self, patterns: Iterable[str]) -> tuple[Expression, ...]:
        """Patterns as they are searched for."""
        return tuple(Expression(pattern, self.needs.get(pattern)) for pattern in patterns)

    def matching(self, globs: Iterable[str]) -> frozenset[str]:
        """The signature ids that one of the globs names."""
        return frozenset().union(*map(self._named_by, globs))

    def causes_of(self, signature: str) -> list[RootCause]:
        """The root causes that can explain a signature."""
        return self._causes.get(signature, [])

    def table_row(self, incident: Incident) -> TableRow | None:
        """What the vendors' tables say of an incident: of the rows for its lines, the one that asks for most."""
        rows = self._rows.get(incident.signature)
        if not rows:
            return None
        lines = ({**m.process, **m.captures, "signature": incident.signature} for m in incident.matches)
        found = [row for line in lines if (row := next((r for r in rows if r.covers(line)), None))]
        return max(found, key=lambda row: ACTIONS.index(row.action), default=None)

    @cached_property
    def mixed_severity(self) -> frozenset[str]:
        """The signatures of which a vendor's table calls some lines critical and others not."""
        return frozenset(s for s, rows in self._rows.items() if len({row.severity == "critical" for row in rows}) > 1)

    def is_critical_line(self, signature: str, captures: Mapping[str, str]) -> bool:
        """Whether a line is one of the critical ones of such a signature."""
        if signature not in self.mixed_severity:
            return False
        line = {**captures, "signature": signature}
        row = next((r for r in self._rows[signature] if r.covers(line)), None)
        return row is not None and row.severity == "critical"

    def severity_of(self, incident: Incident) -> Severity:
        """How bad an incident is: by the vendor's table, else by its signature."""
        row = self.table_row(incident)
        return row.severity if row else self.signatures[incident.signature].severity

    def follows(self, signature: str, other: str) -> bool:
        """Whether a signature is declared a consequence of another."""
        return other in self._followed[signature]

    def follows_any(self, signature: str) -> bool:
        """Whether a signature is declared a consequence of some other."""
        return bool(self._followed[signature])

    def without(self, disabled: Iterable[str]) -> Catalogue:
        """The same, less the signatures that a configuration switches off."""
        off = self.matching(disabled)
        kept = {i: s for i, s in self.signatures.items() if i not in off}
        return replace(self, signatures=kept)

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
class PackFile:
    """A pack with the text that it was read from. Of a pack that was compiled there is no text, only its name."""

    document: Document
    pack: Pack

    def items(self) -> Iterator[tuple[Loc, Identified]]:
        """All that has an id, with its place in the text."""
        for kind in KINDS:
            for index, item in enumerate(getattr(self.pack, kind)):
                yield (kind, index), item


@dataclass(frozen=True, slots=True)
class LoadedPacks:
    """The catalogue, and the files that it was read from: a site's own, and the built-in ones where they were texts."""

    catalogue: Catalogue
    own: tuple[PackFile, ...]
    builtin: tuple[PackFile, ...]


def load_packs(texts: Sequence[NamedText], builtin: Compiled | Sequence[NamedText] = ()) -> Catalogue:
    """The catalogue of `load`."""
    return load(texts, builtin).catalogue


def load(texts: Sequence[NamedText], builtin: Compiled | Sequence[NamedText] = ()) -> LoadedPacks:
    """Turn (file name, YAML text) pairs into a catalogue, above the built-in packs, which only `override` replaces.

    Raises InvalidInput with every problem of every file.
    """
    problems: list[Problem] = []
    known = builtin if isinstance(builtin, Compiled) else Compiled()
    if isinstance(builtin, Compiled):
        beneath = [PackFile(Document(f"builtin pack {pack.pack}", None, {}), pack) for pack in builtin.packs]
    else:
        beneath = _read_packs(builtin, problems)
    own = _read_packs(texts, problems)
    problems.extend(_clashes(beneath, own))
    catalogue = _join([file.pack for file in (*beneath, *own)], known)
    if not problems:
        read = own if isinstance(builtin, Compiled) else [*beneath, *own]
        problems.extend(problem for file in read for problem in _dangling(file, catalogue))
    if problems:
        raise InvalidInput(problems)
    return LoadedPacks(catalogue, tuple(own), () if isinstance(builtin, Compiled) else tuple(beneath))


def _read_packs(texts: Sequence[NamedText], problems: list[Problem]) -> list[PackFile]:
    """The packs of those texts that are sound; what is wrong with the others goes into `problems`."""
    if not texts:
        return []
    from pydantic import ValidationError  # with schema and YAML 0.2 s that a start from compiled packs does without

    from exporter.core.catalogue.pack_schema import Pack as PackModel
    from exporter.core.text.validation import validation_problems
    from exporter.core.text.yaml_text import parse

    files: list[PackFile] = []
    for file, text in texts:
        try:
            document = parse(text, file)
            files.append(PackFile(document, PackModel.model_validate(document.data).read()))
        except InvalidInput as error:
            problems.extend(error.problems)
        except ValidationError as error:
            problems.extend(validation_problems(document, error))
    return files


def compile_packs(texts: Sequence[NamedText]) -> str:
    """Packs as one JSON text that loads without being checked again: for the wheel. Examples stay in the YAML.

    Gates and literals, which many patterns share, are told of once, so that a daemon holds each once.
    """
    loaded = load(texts)
    gated = loaded.catalogue.gates
    all_gates = sorted(frozenset().union(*gated.values()))
    gates_of = {pattern: [bisect_left(all_gates, gate) for gate in sorted(of)] for pattern, of in gated.items()}
    packs = [to_data(_without_examples(file.pack)) for file in loaded.own]
    searched = {
        p for f in loaded.own for kind in _PATTERNED for i in getattr(f.pack, kind) for p in (*i.patterns, *i.unless)
    }
    needs_of = {pattern: needs(pattern) for pattern in sorted(searched)}
    sets = sorted({tuple(literals) for needs in needs_of.values() for literals in (*needs.sets, *needs.first)})
    at = {literals: index for index, literals in enumerate(sets)}
    data = {
        "packs": packs,
        "all_gates": [(gate.literal.decode(), gate.ignore_case) for gate in all_gates],
        "gates": gates_of,
        "sets": sets,
        "needs": {
            pattern: (
                [at[tuple(literals)] for literals in needs.sets],
                needs.ignore_case,
                [at[tuple(literals)] for literals in needs.first],
                needs.one_line,
            )
            for pattern, needs in needs_of.items()
        },
    }
    return json.dumps(data, separators=(",", ":"))


def load_compiled(text: str) -> Compiled:
    """What `compile_packs` wrote."""
    data = json.loads(text)
    all_gates = [Gate(literal.encode(), blind) for literal, blind in data["all_gates"]]
    literals = data["sets"]

    @cache
    def at_places(*places: int) -> frozenset[Gate]:
        return frozenset(all_gates[at] for at in places)

    return Compiled(
        packs=tuple(from_data(Pack, pack) for pack in data["packs"]),
        gates={pattern: at_places(*of) for pattern, of in data["gates"].items()},
        needs={
            pattern: Needs(tuple(literals[at] for at in sets), blind, tuple(literals[at] for at in first), one_line)
            for pattern, (sets, blind, first, one_line) in data["needs"].items()
        },
    )


@dataclass(frozen=True, slots=True)
class Compiled:
    """Packs that have been checked, with the gates and the needs of their patterns."""

    packs: tuple[Pack, ...] = ()
    gates: Mapping[str, frozenset[Gate]] = field(default_factory=dict)
    needs: Mapping[str, Needs] = field(default_factory=dict)


def _without_examples(pack: Pack) -> Pack:
    def less(items: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(item, examples=(), near_misses=()) for item in items)

    bare: dict[str, Any] = {kind: less(getattr(pack, kind)) for kind in _PATTERNED}
    return replace(pack, **bare)


NamedText = tuple[str, str]  # the name of a file, and what is in it
_PATTERNED = ("signatures", "log_facts", "echoes", "crash_shapes")
KINDS = (*_PATTERNED, "root_causes", "tables")


def _join(packs: Sequence[Pack], known: Compiled) -> Catalogue:
    """Packs as one: of two things with one id the later counts."""
    signatures = {s.id: s for p in packs for s in p.signatures}
    log_facts = {f.id: f for p in packs for f in p.log_facts}
    echoes = {e.id: e for p in packs for e in p.echoes}
    crash_shapes = {s.id: s for p in packs for s in p.crash_shapes}
    gated: list[Patterned] = [*signatures.values(), *log_facts.values(), *crash_shapes.values()]
    patterns = {pattern for item in gated for pattern in item.patterns}
    return Catalogue(
        gates={pattern: known.gates.get(pattern) or derive(pattern) for pattern in patterns},
        needs=known.needs,
        signatures=signatures,
        root_causes={c.id: c for p in packs for c in p.root_causes},
        log_facts=tuple(log_facts.values()),
        echoes=tuple(echoes.values()),
        crash_shapes=tuple(crash_shapes.values()),
        tables=tuple({t.id: t for p in packs for t in p.tables}.values()),
        pack_of={item.id: p.pack for p in packs for items in (p.signatures, p.root_causes) for item in items},
    )


def _clashes(builtin: Iterable[PackFile], own: Iterable[PackFile]) -> Iterator[Problem]:
    """Ids that are used twice, in one pack or in two, and replacements that replace nothing."""
    beneath: dict[tuple[str, str], Problem] = {}
    for files in (builtin, own):
        first: dict[tuple[str, str], Problem] = {}
        for file in files:
            for (kind, index), item in file.items():
                here, key = file.document.problem((kind, index, "id"), item.id), (str(kind), item.id)
                there = first.setdefault(key, here)
                if there is not here:
                    yield replace(here, what=f"{item.id} is already in {there.file}:{there.line}; rename or remove one")
                elif item.override and key not in beneath:
                    what = f"override: no built-in one has the id {item.id}; correct the id, or remove `override`"
                    yield replace(here, what=what)
                elif key in beneath and not item.override:
                    what = (
                        f"{item.id} is built in; choose another id, or write `override: true` below it to replace "
                        "the built-in one"
                    )
                    yield replace(here, what=what)
        beneath = first


def _dangling(file: PackFile, catalogue: Catalogue) -> Iterator[Problem]:
    """Names of signatures that are none."""
    named: list[tuple[Loc, str]] = []
    for i, signature in enumerate(file.pack.signatures):
        named += [(("signatures", i, "yields_to", n), glob) for n, glob in enumerate(signature.yields_to)]
        named += [(("signatures", i, "follows", n), glob) for n, glob in enumerate(signature.follows)]
    for i, cause in enumerate(file.pack.root_causes):
        named += [(("root_causes", i, "signatures", n), glob) for n, glob in enumerate(cause.signatures)]
        named += [(("root_causes", i, *loc, "match"), leaf.match) for loc, leaf in leaf_conditions(cause) if leaf.match]
    for i, table in enumerate(file.pack.tables):
        named += [(("tables", i, "signatures", n), glob) for n, glob in enumerate(table.signatures)]
    for loc, glob in named:
        if not catalogue.matching([glob]):
            yield file.document.problem(loc, f"{glob!r} names no signature of any pack; see `gpufault signatures list`")
