"""Reads signature packs: those that come with the package, and those in a site's folders."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from exporter.core.signatures import Catalogue, load_packs
from exporter.core.yamltext import InvalidInput, Problem

_CHECKOUT = Path(__file__).resolve().parent.parent / "signatures"


def load(dirs: Sequence[Path] = (), *, disable: Sequence[str] = ()) -> Catalogue:
    """The catalogue of all packs. Raises InvalidInput with every problem of every file, unreadable ones included."""
    texts = [(f"builtin/{name}", text) for name, text in builtin()]
    problems: list[Problem] = []
    for folder in dirs:
        paths = sorted(folder.glob("**/*.y*ml")) if folder.is_dir() else []
        for path in paths:
            try:
                texts.append((str(path), path.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                problems.append(Problem(str(path), 1, 1, "", f"cannot be read: {error}; mend or remove it"))
    if problems:
        raise InvalidInput(problems)
    catalogue = load_packs(texts)
    unknown = [glob for glob in disable if not catalogue.matching([glob])]
    if unknown:
        names = ", ".join(unknown)
        raise InvalidInput(
            [Problem("configuration", 1, 1, "signatures.disable", f"{names}: no such signature; remove it")]
        )
    return catalogue.without(disable)


def builtin() -> list[tuple[str, str]]:
    """(name, text) of each pack that comes with the package: from the wheel, or from the checkout beside it."""
    packaged = files("exporter") / "_signatures"
    root: Traversable = packaged if packaged.is_dir() else _CHECKOUT
    return sorted(_walk(root, ""))


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".yaml"):
            found.append((f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")))
    return found
