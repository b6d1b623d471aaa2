"""What packs add, change and remove against other packs, and what a site's packs do to the built-in ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from exporter.core.authoring.example_checks import FailedExample, failed_examples, run_text
from exporter.core.catalogue.loader import LoadedPacks
from exporter.core.catalogue.pack_files import PackFile
from exporter.core.catalogue.pack_types import Identified
from exporter.core.matching.pipeline import Pipeline
from exporter.core.text.phrases import counted
from exporter.core.text.stored_values import to_data

How = Literal["added", "removed", "changed", "replaced", "shadowed", "overlaps"]
Key = tuple[str, str]  # kind and id


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, of one item."""

    how: How
    kind: str
    id: str
    message: str

    def __str__(self) -> str:
        return f"{self.how:<8} {self.kind} {self.id}: {self.message}"


def against_others(old: Iterable[PackFile], new: Iterable[PackFile]) -> list[Change]:
    """What is in only one of two sets of packs, and what differs."""
    before, after = _items(old), _items(new)
    changes = [Change("added", *key, _title(after[key])) for key in after.keys() - before.keys()]
    changes += [Change("removed", *key, _title(before[key])) for key in before.keys() - after.keys()]
    changes += [
        Change("changed", *key, ", ".join(changed))
        for key in before.keys() & after.keys()
        if (changed := _changed(before[key], after[key]))
    ]
    return sorted(changes, key=lambda change: (change.kind, change.id))


def against_builtin(loaded: LoadedPacks) -> list[Change]:
    """What a site's packs add to the built-in ones, replace in them, and take from them."""
    own, builtin = _items(loaded.own), _items(loaded.builtin)
    failed = {
        (type(item), item.id): list(failures)
        for item, failures in groupby(failed_examples(loaded.builtin, loaded.catalogue, ["auto"]), lambda one: one.item)
    }
    changes = [Change("added", *key, _title(own[key])) for key in own.keys() - builtin.keys()]
    for key, item in builtin.items():
        lost = failed.get((type(item), item.id), [])
        if key in own:
            changed = ", ".join(_changed(item, own[key])) or "the same as the built-in one"
            changes.append(Change("replaced", *key, changed + (f"; {_no_longer_match(lost)}" if lost else "")))
        elif lost:
            takers = sorted({taker for one in lost for taker in ([one.taken_by] if one.taken_by else one.shows)})
            by = f"; {', '.join(takers)} takes {'it' if len(lost) == 1 else 'them'}" if takers else ""
            changes.append(Change("shadowed", *key, _no_longer_match(lost) + by))
    changes += _overlaps(loaded, {name for _, name in builtin})
    return sorted(changes, key=lambda change: (change.kind, change.id))


def _overlaps(loaded: LoadedPacks, builtin: set[str]) -> Iterator[Change]:
    """The signatures of a site whose examples match built-in ones as well."""
    pipeline = Pipeline(loaded.catalogue)
    for file in loaded.own:
        for item in file.pack.signatures:
            shown = {
                match.signature
                for example in item.examples
                for source in item.sources
                for match in run_text(pipeline, example.text, source).matches
            }
            if others := sorted(shown & builtin - {item.id}):
                message = (
                    f"its examples also match the built-in {', '.join(others)}; use `yields_to` if that one is to count"
                )
                yield Change("overlaps", "signature", item.id, message)


def _no_longer_match(failed: list[FailedExample]) -> str:
    item = failed[0].item
    every = len(item.examples) + len(item.near_misses)
    lost = every if len(failed) == 1 and failed[0].problem.key.endswith(".id") else len(failed)
    return f"{lost} of its {counted(every, 'built-in example')} no longer hold{'s' * (lost == 1)}"


def _items(files: Iterable[PackFile]) -> dict[Key, Identified]:
    return {
        (str(kind).replace("echoes", "echos").removesuffix("s").replace("_", " "), item.id): item
        for file in files
        for (kind, _), item in file.items()
    }


def _changed(before: Identified, after: Identified) -> list[str]:
    """The keys with other values, except `override`."""
    old, new = to_data(before), to_data(after)
    return [key for key in {**old, **new} if key != "override" and old.get(key) != new.get(key)]


def _title(item: Identified) -> str:
    return str(to_data(item).get("title", ""))
