"""Pack files: the valid items of each text, and the problems of the others."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from exporter.core.catalogue import pack_types
from exporter.core.catalogue.pack_types import Identified, Pack
from exporter.core.text.problems import Document, InvalidInput, Loc, Problem
from exporter.core.values import dataclass, replace

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Item = TypeVar("Item")
NamedText = tuple[str, str]  # file name, text
PATTERNED = ("signatures", "log_facts", "echoes", "crash_shapes")
KINDS = (*PATTERNED, "root_causes", "tables")
LISTS = (*KINDS, "reports")  # of a pack; a report has no id
ANY = frozenset({"*"})


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack and its text. A compiled pack has only a name."""

    document: Document
    pack: Pack

    def items(self) -> Iterator[tuple[Loc, Identified]]:
        """Everything with an id, and its location in the text."""
        for kind in KINDS:
            for index, item in enumerate(getattr(self.pack, kind)):
                yield (kind, index), item


@dataclass(frozen=True, slots=True)
class ReadPacks:
    """Pack files with their valid items, the problems of the others, and the ids of rejected signatures.

    "*" among these ids: any signature may be rejected, since a file or a part of it could not be read.
    """

    files: tuple[PackFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    rejected: frozenset[str] = frozenset()


@cache
def schema(kind: type[Item]) -> TypeAdapter[Item]:
    """The schema of a pack or of a part of one. Its constraints need pydantic, which only uncompiled packs load."""
    from pydantic import TypeAdapter

    from exporter.core.catalogue import constraints, reports

    for module in (reports, pack_types):
        vars(module).update({name: getattr(constraints, name) for name in constraints.__all__})
    return TypeAdapter(kind)


def names_one_of(glob: str, ids: frozenset[str]) -> bool:
    """Whether a glob matches one of the ids of rejected signatures."""
    return bool(ids) and ("*" in ids or bool(fnmatch.filter(ids, glob)))


def read_packs(texts: Sequence[NamedText]) -> ReadPacks:
    if not texts:
        return ReadPacks()
    from exporter.core.text.yaml_text import read  # pydantic and YAML take 0.2 s; compiled packs need neither

    files: list[PackFile] = []
    problems: list[Problem] = []
    rejected: frozenset[str] = frozenset()
    for name, text in texts:
        try:
            document, refused = read(text, name)
        except InvalidInput as error:
            problems += error.problems
            rejected |= ANY
            continue
        one = _valid_part(document)
        files += one.files
        problems += sorted((*refused, *one.problems), key=lambda problem: (problem.line, problem.col))
        rejected |= one.rejected
    return ReadPacks(tuple(files), tuple(problems), rejected)


def _valid_part(document: Document) -> ReadPacks:
    """The valid items of a document; every other item is rejected with its problems."""
    from pydantic import ValidationError

    from exporter.core.text.validation import located_problems

    try:
        pack = schema(Pack).validate_python(document.data)
        if not document.refused:
            return ReadPacks((PackFile(document, pack),))
        located = []
    except ValidationError as error:
        located = located_problems(document, error, Pack)
    problems = tuple(problem for _, problem in located)
    if not isinstance(document.data, dict):
        return ReadPacks((), problems, ANY)
    wrong = {*document.refused, *(loc for loc, _ in located)}
    rest, moved = _without(document.data, wrong)
    try:
        pack = schema(Pack).validate_python(rest)
    except ValidationError:
        return ReadPacks((), problems, ANY)
    return ReadPacks((PackFile(replace(document, moved=moved), pack),), problems, _rejected(document.data, wrong))


def _without(data: dict[str, Any], wrong: set[Loc]) -> tuple[dict[str, Any], dict[Loc, Loc]]:
    """A pack without its wrong items and keys, and where its items are in the text."""
    rest: dict[str, Any] = {}
    moved: dict[Loc, Loc] = {}
    for key, value in data.items():
        if (key,) in wrong or () in wrong:
            continue
        rest[key] = value
        if key in LISTS and isinstance(value, list):
            kept = [at for at in range(len(value)) if not any(loc[:2] == (key, at) for loc in wrong)]
            rest[key] = [value[at] for at in kept]
            moved |= {(key, new): (key, at) for new, at in enumerate(kept)}
    return {"pack": "unnamed", **rest}, moved


def _rejected(data: dict[str, Any], wrong: set[Loc]) -> frozenset[str]:
    """The ids of the wrong signatures; "*" if one has no id, or a key of the pack is wrong."""
    ids: set[str] = set()
    for loc in wrong:
        if len(loc) < 2 and loc != ("pack",):
            return ANY
        if loc[0] == "signatures" and len(loc) > 1:
            item = data["signatures"][loc[1]]
            name = item.get("id") if isinstance(item, dict) else None
            ids.add(name if isinstance(name, str) else "*")
    return frozenset(ids)


def clashes(builtin: Iterable[PackFile], own: Iterable[PackFile]) -> Iterator[Problem]:
    """Duplicate ids, and overrides of nothing."""
    beneath: dict[tuple[str, str], Problem] = {}
    for files in (builtin, own):
        first: dict[tuple[str, str], Problem] = {}
        for file in files:
            for (kind, index), item in file.items():
                here, key = file.document.problem((kind, index, "id"), item.id), (str(kind), item.id)
                there = first.setdefault(key, here)
                if there is not here:
                    yield replace(
                        here, message=f"{item.id} is already in {there.file}:{there.line}; rename or remove one"
                    )
                elif item.override and key not in beneath:
                    message = f"override: unknown built-in id {item.id}; correct the id, or remove `override`"
                    yield replace(here, message=message)
                elif key in beneath and not item.override:
                    message = f"{item.id} is built in; choose another id, or add `override: true` to replace it"
                    yield replace(here, message=message)
        beneath = first
