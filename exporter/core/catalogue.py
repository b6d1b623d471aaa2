"""All packs in force as one catalogue: how packs are joined, held against each other, and compiled for the wheel.

`load_packs` reports every error of every file as `file:line:col: key: what, then what to do`, all at once. What a pack
may hold is in `signatures`; files are read by the caller.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pydantic import Field, ValidationError

from exporter.core import gates
from exporter.core.problems import Document, InvalidInput, Loc, Problem
from exporter.core.signatures import (
    CrashShape,
    Echo,
    Gated,
    Identified,
    LogFact,
    Pack,
    PackModel,
    RootCause,
    Signature,
    leaves,
    validation_problems,
)


@dataclass(frozen=True)  # without slots: what is derived from globs is derived once
class Catalogue:
    """All packs in force, with ids unique over them."""

    signatures: Mapping[str, Signature]
    root_causes: Mapping[str, RootCause]
    log_facts: tuple[LogFact, ...]
    echoes: tuple[Echo, ...]
    crash_shapes: tuple[CrashShape, ...]
    pack_of: Mapping[str, str]
    gates: Mapping[str, frozenset[gates.Gate]]  # of every pattern that is searched for

    def matching(self, globs: Iterable[str]) -> frozenset[str]:
        """The signature ids that one of the globs names."""
        found: set[str] = set()
        for glob in globs:
            if set("*?").isdisjoint(glob):
                found.update({glob} & self.signatures.keys())
            else:
                found.update(fnmatch.filter(self.signatures, glob))
        return frozenset(found)

    def causes_of(self, signature: str) -> list[RootCause]:
        """The root causes that can explain a signature."""
        return self._causes.get(signature, [])

    def follows(self, signature: str, other: str) -> bool:
        """Whether a signature is declared a consequence of another."""
        return other in self._followed[signature]

    def without(self, disabled: Iterable[str]) -> Catalogue:
        """The same, less the signatures that a configuration switches off."""
        off = self.matching(disabled)
        kept = {i: s for i, s in self.signatures.items() if i not in off}
        return replace(self, signatures=kept)

    @cached_property
    def _causes(self) -> dict[str, list[RootCause]]:
        causes: dict[str, list[RootCause]] = {}
        for cause in self.root_causes.values():
            for signature in self.matching(cause.signatures):
                causes.setdefault(signature, []).append(cause)
        return causes

    @cached_property
    def _followed(self) -> dict[str, frozenset[str]]:
        return {signature.id: self.matching(signature.follows) for signature in self.signatures.values()}


def load_packs(texts: Sequence[tuple[str, str]], base: Compiled | None = None) -> Catalogue:
    """Turn (file name, YAML text) pairs, and packs that were checked before, into one catalogue.

    Raises InvalidInput with every problem of every file.
    """
    base = base or Compiled()
    problems: list[Problem] = []
    packs: list[tuple[Document, Pack]] = []
    for file, text in texts:
        try:
            packs.append(_read_pack(file, text))
        except InvalidInput as error:
            problems.extend(error.problems)
    problems.extend(_duplicates([*((Document(f"builtin pack {p.pack}", None, {}), p) for p in base.packs), *packs]))
    catalogue = _join([*base.packs, *(pack for _, pack in packs)], base.gates)
    if not problems:
        problems.extend(_dangling(packs, catalogue))
    if problems:
        raise InvalidInput(problems)
    return catalogue


def _read_pack(file: str, text: str) -> tuple[Document, Pack]:
    from exporter.core.yamltext import parse  # 40 ms that a start from compiled packs does without

    document = parse(text, file)
    try:
        return document, Pack.model_validate(document.data)
    except ValidationError as error:
        raise InvalidInput(validation_problems(document, error)) from None


def compile_packs(texts: Sequence[tuple[str, str]]) -> str:
    """Packs as one JSON text that loads without being checked again: for the wheel. Examples stay in the YAML."""
    catalogue = load_packs(texts)
    packs = [pack for _, pack in (_read_pack(file, text) for file, text in texts)]
    compiled = Compiled(
        packs=packs,
        gates_of={
            pattern: [(g.literal.decode(), g.ignore_case) for g in sorted(gs)]
            for pattern, gs in catalogue.gates.items()
        },
    )
    leave_out = {"packs": {"__all__": {kind: {"__all__": {"examples", "near_misses"}} for kind in _PATTERNED}}}
    return compiled.model_dump_json(by_alias=True, exclude_defaults=True, exclude=leave_out)


def load_compiled(text: str) -> Compiled:
    """What `compile_packs` wrote."""
    return Compiled.model_validate_json(text, context={"checked": True})


class Compiled(PackModel):
    """Packs that have been checked, with the gates of their patterns."""

    packs: list[Pack] = Field(default_factory=list)
    gates_of: dict[str, list[tuple[str, bool]]] = Field(default_factory=dict)

    @property
    def gates(self) -> dict[str, frozenset[gates.Gate]]:
        return {p: frozenset(gates.Gate(text.encode(), blind) for text, blind in gs) for p, gs in self.gates_of.items()}


_PATTERNED = ("signatures", "log_facts", "echoes", "crash_shapes")


def _join(packs: Sequence[Pack], known: Mapping[str, frozenset[gates.Gate]]) -> Catalogue:
    gated: list[Gated] = [item for p in packs for item in (*p.signatures, *p.log_facts, *p.crash_shapes)]
    patterns = {pattern for item in gated for pattern in item.patterns}
    return Catalogue(
        gates={pattern: known.get(pattern) or gates.derive(pattern) for pattern in patterns},
        signatures={s.id: s for p in packs for s in p.signatures},
        root_causes={c.id: c for p in packs for c in p.root_causes},
        log_facts=tuple(f for p in packs for f in p.log_facts),
        echoes=tuple(e for p in packs for e in p.echoes),
        crash_shapes=tuple(s for p in packs for s in p.crash_shapes),
        pack_of={item.id: p.pack for p in packs for item in (*p.signatures, *p.root_causes)},
    )


def _duplicates(packs: Sequence[tuple[Document, Pack]]) -> Iterable[Problem]:
    first: dict[tuple[str, str], Problem] = {}
    for document, pack in packs:
        for kind, items in _items(pack).items():
            for index, item in enumerate(items):
                here = document.problem((kind, index, "id"), item.id)
                there = first.setdefault((kind, item.id), here)
                if there is not here:
                    yield replace(here, what=f"{item.id} is already in {there.file}:{there.line}; rename or remove one")


def _items(pack: Pack) -> dict[str, Sequence[Identified]]:
    return {
        "signatures": pack.signatures,
        "root_causes": pack.root_causes,
        "log_facts": pack.log_facts,
        "echoes": pack.echoes,
        "crash_shapes": pack.crash_shapes,
    }


def _dangling(packs: Sequence[tuple[Document, Pack]], catalogue: Catalogue) -> Iterable[Problem]:
    for document, pack in packs:
        named: list[tuple[Loc, str]] = []
        for i, signature in enumerate(pack.signatures):
            named += [(("signatures", i, "yields_to", n), glob) for n, glob in enumerate(signature.yields_to)]
            named += [(("signatures", i, "follows", n), glob) for n, glob in enumerate(signature.follows)]
        for i, cause in enumerate(pack.root_causes):
            named += [(("root_causes", i, "signatures", n), glob) for n, glob in enumerate(cause.signatures)]
            named += [(("root_causes", i, "when"), leaf.match) for leaf in leaves(cause) if leaf.match]
        for loc, glob in named:
            if not catalogue.matching([glob]):
                yield document.problem(loc, f"{glob!r} names no signature of any pack; see `gpufault signatures list`")
