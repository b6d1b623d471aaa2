"""Reads signature packs: those that come with the package, and those in a site's folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from exporter.core.catalogue import Catalogue, Compiled, load_compiled, load_packs
from exporter.core.problems import InvalidInput, Problem

COMPILED = "_signatures.json"  # made when the wheel is built; a checkout reads its YAML
_CHECKOUT = Path(__file__).resolve().parent.parent / "signatures"


def load(dirs: Sequence[Path] = (), *, disable: Sequence[str] = (), whole: bool = False) -> Catalogue:
    """The catalogue of all packs. Raises InvalidInput with every problem of every file, unreadable ones included.

    `whole` reads the built-in packs' YAML too, with their examples, for the tools of those who write signatures.
    """
    compiled = None if whole else _compiled()
    texts = [] if compiled else builtin()
    catalogue = load_packs([*texts, *of_site(dirs)], compiled)
    unknown = [glob for glob in disable if not catalogue.matching([glob])]
    if unknown:
        what = f"{', '.join(unknown)}: no such signature; see `gpufault signatures list`"
        raise InvalidInput([Problem("configuration", 1, 1, "signatures.disable", what)])
    return catalogue.without(disable)


def builtin() -> list[tuple[str, str]]:
    """(name, text) of each pack that comes with the package: from the wheel, or from the checkout beside it."""
    packaged = files("exporter") / "_signatures"
    root: Traversable = packaged if packaged.is_dir() else _CHECKOUT
    return sorted(_walk(root, "builtin/"))


def of_site(places: Iterable[Path]) -> list[tuple[str, str]]:
    """(path, text) of each pack in folders or files. Raises InvalidInput for those that cannot be read."""
    texts: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for place in places:
        for path in sorted(place.glob("**/*.y*ml")) if place.is_dir() else [place] if place.exists() else []:
            try:
                texts.append((str(path), path.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                problems.append(Problem(str(path), 1, 1, "", f"cannot be read: {error}; mend or remove it"))
    if problems:
        raise InvalidInput(problems)
    return texts


def _compiled() -> Compiled | None:
    packaged = files("exporter") / COMPILED
    return load_compiled(packaged.read_text(encoding="utf-8")) if packaged.is_file() else None


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".yaml"):
            found.append((f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")))
    return found
