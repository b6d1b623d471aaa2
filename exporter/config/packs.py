"""Read the built-in signature packs and those in a site's folders."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.catalogue import loader
from exporter.core.catalogue.loader import Catalogue, Compiled, LoadedPacks
from exporter.core.catalogue.reports import WORDS, SettledReport
from exporter.core.model import Domain
from exporter.core.text.phrases import nearest
from exporter.core.text.problems import InvalidInput, Loc, Problem
from exporter.core.values import replace
from exporter.store.safe_open import read_text

if TYPE_CHECKING:
    from exporter.core.catalogue.outcomes import Outcomes

REPORTS = "reports"  # a folder of the built-in packs that only explanations read
COMPILED = "_signatures.pickle"  # made when the wheel is built; a checkout reads its YAML
_ORDINARY_WORDS = Path(__file__).with_name("ordinary_words.txt")
_PACKAGE = Path(__file__).resolve().parents[1]
_PACKAGED, _CHECKOUT = _PACKAGE / "_signatures", _PACKAGE.parent / "signatures"


def load(dirs: Sequence[Path] = (), *, whole: bool = False) -> Catalogue:
    """The catalogue of all packs.

    Raises InvalidInput with all problems of all files, including unreadable files and failing examples of a site's packs.
    whole: read the built-in packs from YAML, with their examples, for tests.
    """
    compiled = None if whole else _compiled()
    loaded = loader.examine(of_site(dirs), compiled or builtin())
    problems = list(loaded.problems)
    if loaded.own:
        from exporter.core.authoring.lint import errors

        problems += errors(loaded)
    if problems:
        raise InvalidInput(problems)
    return loaded.catalogue


def unknown(catalogue: Catalogue, disable: Sequence[str]) -> Iterator[tuple[Loc, str]]:
    """The globs of `signatures.disable` that match no signature, with their locations."""
    for number, glob in enumerate(disable):
        if not catalogue.matching([glob]):
            near = nearest(glob, catalogue.signatures)
            advice = f"did you mean {near}?" if near else "see `gpufault signatures list`"
            yield ("signatures", "disable", number), f"no signature is {glob!r}; {advice}"


def load_texts(paths: Sequence[Path] = ()) -> LoadedPacks:
    """All packs with their source texts, without checking their examples: for the tools of pack authors."""
    return loader.load(of_site(paths), builtin())


def examine(names: Iterable[str]) -> LoadedPacks:
    """As `load_texts`, for files and folders that a user names; returns the problems beside what is valid."""
    paths = [Path(name) for name in names]
    texts, unreadable = _texts(paths)
    missing = (*_missing(paths), *_empty(paths), *unreadable)
    loaded = loader.examine(texts, builtin(), frozenset("*") if missing else frozenset())
    return replace(loaded, problems=(*missing, *loaded.problems))


def builtin() -> list[tuple[str, str]]:
    """(name, text) of each built-in pack: from the wheel, or from the checkout."""
    is_packaged = _PACKAGED.is_dir()
    root, name = (_PACKAGED, "builtin") if is_packaged else (_CHECKOUT, "signatures")
    paths = (path for path in root.rglob("*.yaml") if path.parent.name != REPORTS)
    return sorted((f"{name}/{path.relative_to(root)}", path.read_text("utf-8")) for path in paths)


def ordinary_words() -> dict[str, int]:
    """The frequent words of ordinary text, and how many there are at least in a million."""
    lines = (line.split() for line in _ORDINARY_WORDS.read_text(encoding="utf-8").splitlines())
    return {word: int(least) for least, *words in lines for word in words}


def usual_words() -> set[str]:
    """In lower case: words of ordinary text and of the shipped reports, but for their addresses."""
    texts = (re.sub(r"(?m)^.*\baddress: .*$", "", text) for _, text in report_texts())
    return {word.lower() for word in chain(ordinary_words(), *map(WORDS.findall, texts))}


@cache
def reports(signature: str) -> tuple[SettledReport, ...]:
    """The settled public reports of a signature. Their files are checked by a test, and only its entries are parsed here."""
    import yaml

    loader_type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = (entry for _, text in report_texts() for entry in text.split("\n  - ")[1:])
    rows = "\n".join(f"  - {entry}" for entry in entries if f" signature: {signature}\n" in entry)
    return tuple(SettledReport(**row) for row in yaml.load(rows, loader_type) or ())  # noqa: S506 - a safe loader


@cache
def report_domains() -> Mapping[Domain, int]:
    """How many settled public reports of all signatures lay where."""
    domains = (re.findall(r"^    domain: (\w+)$", text, re.MULTILINE) for _, text in report_texts())
    return Counter(chain.from_iterable(domains))


def outcomes(catalogue: Catalogue, signature: str) -> Outcomes:
    """What settled reports of a signature turned out to be, public ones and those of the site's packs."""
    from exporter.core.catalogue.outcomes import Outcomes  # what explains needs it; a scan without a crash does not

    own = catalogue.signatures.get(signature)
    return Outcomes(
        public=reports(signature),
        site=tuple(report for report in catalogue.reports if report.signature == signature),
        everywhere=report_domains(),
        vendor=own.vendor if own else "any",
    )


def report_texts() -> list[tuple[str, str]]:
    """(name, text) of each file of reports."""
    root = (_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT) / REPORTS
    return sorted((f"{REPORTS}/{path.name}", path.read_text("utf-8")) for path in root.glob("*.yaml"))


def existing(names: Iterable[str]) -> list[Path]:
    """The files and folders that a user names. Raises InvalidInput with all missing ones."""
    paths = [Path(name) for name in names]
    if missing := _missing(paths):
        raise InvalidInput(missing)
    return paths


def with_packs(names: Iterable[str]) -> list[Path]:
    """As `existing`, where a folder without packs is a mistake too."""
    paths = [Path(name) for name in names]
    if wrong := [*_missing(paths), *_empty(paths)]:
        raise InvalidInput(wrong)
    return paths


def _missing(paths: Iterable[Path]) -> list[Problem]:
    return [Problem(str(p), 1, 1, "", "no such file or folder; correct the path") for p in paths if not p.exists()]


def _empty(paths: Iterable[Path]) -> list[Problem]:
    message = "the folder has no packs; name one with .yaml files"
    return [Problem(str(p), 1, 1, "", message) for p in paths if p.is_dir() and not any(_files_in(p))]


def of_site(paths: Iterable[Path]) -> list[tuple[str, str]]:
    """(path, text) of each pack in folders or files. Raises InvalidInput for those that cannot be read."""
    texts, problems = _texts(paths)
    if problems:
        raise InvalidInput(problems)
    return texts


def _texts(paths: Iterable[Path]) -> tuple[list[tuple[str, str]], list[Problem]]:
    """(path, text) of each pack in folders or files, and a problem for each that cannot be read."""
    texts: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for root in paths:
        for path in sorted(_files_in(root)) if root.is_dir() else [root] if root.exists() else []:
            if Path(os.path.realpath(path)).is_relative_to(_CHECKOUT) and not _PACKAGED.is_dir():
                continue  # the checkout's own: among the built-in ones already
            try:
                texts.append((str(path), read_text(path, errors="strict")))
            except UnicodeDecodeError:
                problems.append(Problem(str(path), 1, 1, "", "not UTF-8 text; save it as UTF-8, or remove it"))
            except OSError as error:
                problems.append(Problem(str(path), 1, 1, "", f"cannot be read: {error.strerror}; fix or remove it"))
    return texts, problems


def _files_in(folder: Path) -> Iterator[Path]:
    """The YAML files below a folder, except hidden ones: a mounted ConfigMap has a second copy of each file in
    `..2026_01_01_…`, which the kubelet replaces as a whole.
    """
    for path in folder.glob("**/*.y*ml"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def is_compiled() -> bool:
    """Whether the built-in packs were compiled, as in a wheel."""
    return (_PACKAGE / COMPILED).is_file()


def _compiled() -> Compiled | None:
    return loader.load_compiled((_PACKAGE / COMPILED).read_bytes()) if is_compiled() else None
