"""Which paths are logs: globs with `**`, walked from the folder that each one names without a wildcard.

Wildcards follow glob(7): they cross no folder and match no leading dot (`.nfs…`, `.a.log.swp`). Literal parts are
looked up, not listed: `/home/*/logs/*.log` lists no home. Opens no file.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exporter.sources.files import filesystem
from exporter.sources.files.contents import inode_of
from exporter.sources.files.filesystem import Roots

STEP_ENTRIES = 500  # folder entries between two chances to pause a walk: about a millisecond
FOLDER_ENTRIES = 20  # so many entries does it take to make up for opening a folder

_ANY_DEPTH = None  # the part `**`
_Part = str | re.Pattern[str] | None
_State = tuple[int, int]  # which glob, and how many of its parts the folders so far have used up
WILDCARD = re.compile(r"[*?[]")
_BRACES = re.compile(r"\{[^{}/]*,[^{}/]*\}")  # of a shell


class GlobMatch(NamedTuple):
    """A path that a glob matches. `inode` is the entry's own, not that of what a link leads to; 0 where not known."""

    path: str
    name: str
    inode: int
    is_link: bool
    is_folder: bool


Trouble = Callable[[str, OSError], None]  # told of each folder that cannot be read


class Globs:
    """The patterns of one source, and what is excluded from them: by name, or since it is an earlier source's."""

    def __init__(self, patterns: Sequence[str], exclude: Sequence[str] = (), earlier: Sequence[Globs] = ()) -> None:
        self.patterns = tuple(patterns)
        globs = [_parse(pattern) for pattern in patterns]
        self.roots = tuple(root for root, _ in globs)
        self._parts = tuple(parts for _, parts in globs)
        self._excluded_paths = _any_of(exclude)
        # A `*` in front stands for folders, too: who begins with it need not be tried on the name as well.
        self._excluded_names = _any_of(glob for glob in exclude if not glob.startswith("*"))
        self._earlier = tuple(earlier)
        self._last: dict[frozenset[_State], re.Pattern[str]] = {}  # what names logs have in a folder with these states

    def watchable(self) -> dict[str, bool]:
        """The roots, and for each whether folders below it may hold logs too."""
        deep: dict[str, bool] = {}
        for root, parts in zip(self.roots, self._parts, strict=True):
            deep[root] = deep.get(root, False) or len(parts) > 1
        return deep

    def mistakes(self) -> dict[str, str]:
        """The patterns that can match no log, and for each what is wrong and what to write instead."""
        globs = zip(self.patterns, self.roots, self._parts, strict=True)
        wrong = {pattern: self._mistake(pattern, root, parts) for pattern, root, parts in globs}
        return {pattern: f"{pattern} {mistake}" for pattern, mistake in wrong.items() if mistake}

    def _mistake(self, pattern: str, root: str, parts: tuple[_Part, ...]) -> str:
        path = os.path.abspath(pattern)
        if self._is_excluded(os.path.basename(path), path):
            return "matches only logs that exclude names, or that an earlier source reads"
        if _BRACES.search(pattern):
            return "has braces, which stand for themselves; write one path for each alternative"
        if pattern.endswith("/") or (isinstance(parts[-1], str) and len(parts) == 1 and filesystem.is_folder(path)):
            return f"is a folder; write {path}/**/*.log, or {path}/** for all of its files"
        if filesystem.is_there(root) and not filesystem.is_folder(root):
            return f"cannot match: {root} is not a folder"
        return ""

    def match(self, path: str) -> bool:
        """Whether a path is a log's, by its name alone."""
        folder, name = os.path.split(path)
        return self._is_log(self._states_of(folder), name, path)

    def excludes(self, path: str) -> bool:
        """Whether a path is not to be read, whatever leads there."""
        return self._is_excluded(os.path.basename(path), path)

    def walk(self, allowed: Roots, trouble: Trouble, below: str | None = None) -> Iterator[GlobMatch | None]:
        """All logs, or those in the folder `below` and deeper. None comes in between, where the walk may be paused."""
        visited: set[tuple[int, int, frozenset[_State]]] = set()
        for start in dict.fromkeys(self.roots) if below is None else [below]:
            states = self._states_of(start)
            if states:
                yield from self._walk(start, states, allowed, trouble, visited)

    def _walk(
        self,
        start: str,
        states: frozenset[_State],
        allowed: Roots,
        trouble: Trouble,
        visited: set[tuple[int, int, frozenset[_State]]],
    ) -> Iterator[GlobMatch | None]:
        waiting, cost = [(start, states)], 0
        while waiting:
            folder, states = waiting.pop()
            cost += FOLDER_ENTRIES
            if cost >= STEP_ENTRIES:
                cost = 0
                yield None
            try:
                # A link may lead back up. Other states find other files.
                seen = (*inode_of(filesystem.stat(folder)), states)
                if seen in visited:
                    continue
                visited.add(seen)
                for entry in self._entries(folder, states):
                    cost += 1
                    if cost >= STEP_ENTRIES:
                        cost = 0
                        yield None
                    enter = self._below(states, entry.name) if entry.is_folder else frozenset()
                    if entry.is_folder and entry.is_link and not allowed.hold(filesystem.realpath(entry.path)):
                        enter = frozenset()
                    if enter:
                        waiting.append((entry.path, enter))
                    elif self._is_log(states, entry.name, entry.path):
                        yield entry
            except OSError as error:
                trouble(folder, error)

    def _entries(self, folder: str, states: frozenset[_State]) -> Iterator[GlobMatch]:
        """What may matter in a folder."""
        parts = {self._parts[glob][at] for glob, at in states}
        if all(isinstance(part, str) for part in parts):  # may not be there: whoever opens them will know
            for name in sorted(part for part in parts if isinstance(part, str)):
                path = os.path.join(folder, name)
                yield GlobMatch(path, name, 0, filesystem.is_link(path), filesystem.is_folder(path))
            return
        for entry in filesystem.entries(folder):
            is_folder = filesystem.leads_to_folder(entry)
            yield GlobMatch(entry.path, entry.name, entry.inode(), entry.is_symlink(), is_folder)

    def _is_log(self, states: frozenset[_State], name: str, path: str) -> bool:
        last = self._last.get(states)
        if last is None:
            parts = [self._parts[glob][at] for glob, at in states if at == len(self._parts[glob]) - 1]
            last = self._last[states] = re.compile("|".join(map(_regex, parts)) or r"(?!)")
        return bool(last.match(name)) and not self._is_excluded(name, path)

    def _is_excluded(self, name: str, path: str) -> bool:
        if self._excluded_paths.match(path) or self._excluded_names.match(name):
            return True
        return bool(self._earlier) and any(globs.match(path) for globs in self._earlier)

    def _below(self, states: Iterable[_State], name: str) -> frozenset[_State]:
        """The states in the folder `name` of a folder with `states`."""
        after: set[_State] = set()
        for glob, at in states:
            part = self._parts[glob][at]
            if part is _ANY_DEPTH and not name.startswith("."):
                after.add((glob, at))
            elif part is not _ANY_DEPTH and at + 1 < len(self._parts[glob]) and _fits(part, name):
                after.add((glob, at + 1))
        return self._closed(after)

    def _states_of(self, folder: str) -> frozenset[_State]:
        """The states in a folder, by its name."""
        states: set[_State] = set()
        for glob, root in enumerate(self.roots):
            if f"{folder}/".startswith(f"{root.rstrip('/')}/"):
                here = self._closed([(glob, 0)])
                for name in os.path.relpath(folder, root).split("/"):
                    here = here if name == "." else self._below(here, name)
                states |= here
        return frozenset(states)

    def _closed(self, states: Iterable[_State]) -> frozenset[_State]:
        """With `**` standing for no folder at all, too."""
        closed = set(states)
        for glob, at in states:
            while self._parts[glob][at] is _ANY_DEPTH:
                at += 1
                closed.add((glob, at))
        return frozenset(closed)


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, globs)) or r"(?!)")


def _parse(pattern: str) -> tuple[str, tuple[_Part, ...]]:
    """The folder that a pattern names without a wildcard, and the parts behind it. The last one is never `**`."""
    names = os.path.abspath(pattern).split("/")[1:]
    if names[-1] == "**":
        names.append("*")
    first = next((i for i, name in enumerate(names) if WILDCARD.search(name)), len(names) - 1)
    parts = tuple(_ANY_DEPTH if name == "**" else _compiled(name) for name in names[first:])
    return "/" + "/".join(names[:first]), parts


def _compiled(name: str) -> str | re.Pattern[str]:
    if not WILDCARD.search(name):
        return name
    hidden = "" if name.startswith(".") else r"(?!\.)"
    return re.compile(hidden + fnmatch.translate(name))


def _regex(part: _Part) -> str:
    return part.pattern if isinstance(part, re.Pattern) else re.escape(part or "") + r"\Z"


def _fits(part: _Part, name: str) -> bool:
    if isinstance(part, str):
        return part == name
    return part is not None and part.match(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """Which files are logs, and how they are read."""

    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    earlier: tuple[FilesSettings, ...] = ()  # sources before this one, whose logs are not this one's
    format: Literal["auto", "plain", "cri", "docker"] = "auto"
    start: Literal["end", "beginning"] = "end"
    allow_roots: tuple[str, ...] = ()
    line_bytes: int = 1 << 20
    open_files: int = 1024
    grace_seconds: float = 30.0  # how long a rotated or deleted file must be quiet: its writers still have it open
    watch: bool = True
    service_accounts: frozenset[int] = frozenset({0})  # users that write logs for others: their files tell no owner

    def globs(self) -> Globs:
        return Globs(self.paths, self.exclude, [source.globs() for source in self.earlier])
