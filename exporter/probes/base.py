"""What a probe is: the facts that it declares, a look at a machine, and what it found. And the machine as it sees it."""

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.pci import normalise_pci
from exporter.core.facts.values import single_line

T = TypeVar("T")

_CHUNK_BYTES = 64 << 10  # /proc/sys allocates as much as is asked for, and refuses megabytes (ENOMEM)
_MOST_BYTES = 1 << 20  # a kernel's configuration has 300 KiB; only package databases are larger, and say so
_LINKS = 40  # as the kernel's own limit (MAXSYMLINKS)


@dataclass(frozen=True, slots=True)
class Fact:
    """What a fact says and where it is read from.

    With `parse`, `source` is a path, or several of which the first that can be read counts, and that is all there is to
    it. Without, it only says for a reader where the probe looks.
    """

    meaning: str
    source: str
    parse: Callable[[str], str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one probe found; of each GPU, only what this probe knows of it."""

    facts: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()


class Host:
    """The machine below `root`, as one probe sees it. What does not exist is None; what cannot be read is None too, and
    a line in `problems`, so that one unreadable file costs one fact and not the probe.
    """

    def __init__(self, root: Path, home: str | None = None) -> None:
        self.root = root
        self.home = home
        self.problems: list[str] = []

    def read(self, *paths: str, most: int = _MOST_BYTES) -> str | None:
        """The text of the first of `paths` that can be read. A problem is noted only when none can."""
        data = self.read_bytes(*paths, most=most)
        return None if data is None else data.decode(errors="backslashreplace")

    def read_bytes(self, *paths: str, most: int = _MOST_BYTES) -> bytes | None:
        return self._first(lambda real: _bytes_of(real, most), *paths)

    def value(self, *paths: str) -> str | None:
        return single_line(self.read(*paths))

    def names(self, folder: str) -> list[str]:
        return sorted(self._first(os.listdir, folder) or ())

    def addresses(self, folder: str) -> list[str]:
        """The PCI addresses among the names in `folder`: a driver's has `bind`, `module` and others besides."""
        return [name for name in self.names(folder) if normalise_pci(name) == name]

    def exists(self, path: str) -> bool:
        return self._first(os.stat, path) is not None

    def owner(self, path: str) -> int | None:
        return self._first(lambda real: real.stat().st_uid, path)

    def link(self, path: str) -> str | None:
        """Where a link leads, by its last part; None for what is no link."""
        parent, _, name = path.rpartition("/")
        try:
            return os.path.basename(os.readlink(self.real(parent) / name))
        except OSError:
            return None

    def resolve(self, path: str) -> str:
        """`path` without links, as a process inside `root` would see it: absolute links begin at `root` again.

        Below another root, such as /host in a container, the kernel would follow /opt/rocm → /etc/alternatives/rocm
        into the container's own /etc.
        """
        links, resolved, rest = 0, "", path.split("/")[::-1]
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                resolved = resolved.rpartition("/")[0]
                continue
            try:
                target = os.readlink(f"{self.root}{resolved}/{name}")
            except OSError:  # no link, or nothing at all
                resolved += f"/{name}"
                continue
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, "too many links")
            if target.startswith("/"):
                resolved = ""
            rest += target.split("/")[::-1]
        return resolved or "/"

    def real(self, path: str) -> Path:
        """Where a path of the machine lies for us. Of our own root the kernel resolves links itself, ten times faster."""
        return Path(path) if self.root == Path("/") else self.root / self.resolve(path).lstrip("/")

    def _first(self, ask: Callable[[Path], T], *paths: str) -> T | None:
        problems = []
        for path in paths:
            try:
                return ask(self.real(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems.append(f"{path}: {error.strerror}")
        self.problems += [problem for problem in problems if problem not in self.problems]
        return None


def _bytes_of(path: Path, most: int) -> bytes:
    # O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        chunks, left = [], most
        while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)


def no_further_facts(_host: Host) -> Found:
    """The look of a probe all of whose facts are files."""
    return Found()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One question to a machine: what it may state, and how it is asked beyond the files that the facts name."""

    facts: Mapping[str, Fact]
    look: Callable[[Host], Found] = no_further_facts

    def ask(self, host: Host) -> Found:
        read = {
            name: fact.parse(text)
            for name, fact in self.facts.items()
            if fact.parse and (text := host.read(*fact.source.split())) is not None
        }
        seen = self.look(host)
        return Found(facts={**known_facts(**read), **seen.facts}, gpus=seen.gpus)


def known_facts(**facts: str | None) -> dict[str, str]:
    """The facts that are known."""
    return {name: value for name, value in facts.items() if value}
