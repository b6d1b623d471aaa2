"""The types of probes: declared facts, the machine to read, and results."""

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.parsing import single_line
from exporter.core.facts.pci import normalise_pci

T = TypeVar("T")

_CHUNK_BYTES = 64 << 10  # /proc/sys allocates the requested size and refuses megabytes (ENOMEM)
_MOST_BYTES = 1 << 20  # a kernel configuration has 300 KiB; package databases pass their own limit
_LINKS = 40  # as the kernel's own limit (MAXSYMLINKS)


@dataclass(frozen=True, slots=True)
class Fact:
    """The meaning and the source of a fact.

    With `parse`, the fact is read from the first readable path in `source`. Without it, `source` is only documentation.
    """

    meaning: str
    source: str
    parse: Callable[[str], str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The facts of one probe, and partial data of GPUs."""

    facts: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()


class Host:
    """The machine below `root`. Missing files are None; unreadable ones are None and noted in `problems`."""

    def __init__(self, root: Path, home: str | None = None) -> None:
        self.root = root
        self.home = home
        self.problems: list[str] = []

    def read(self, *paths: str, most: int = _MOST_BYTES) -> str | None:
        """The text of the first readable path. Problems are noted only if none is readable."""
        data = self.read_bytes(*paths, most=most)
        return None if data is None else data.decode(errors="backslashreplace")

    def read_bytes(self, *paths: str, most: int = _MOST_BYTES) -> bytes | None:
        return self._first(lambda real: _bytes_of(real, most), *paths)

    def value(self, *paths: str) -> str | None:
        return single_line(self.read(*paths))

    def names(self, folder: str) -> list[str]:
        return sorted(self._first(os.listdir, folder) or ())

    def addresses(self, folder: str) -> list[str]:
        """The names in a folder that are PCI addresses; a driver's folder has others too."""
        return [name for name in self.names(folder) if normalise_pci(name) == name]

    def exists(self, path: str) -> bool:
        return self._first(os.stat, path) is not None

    def owner(self, path: str) -> int | None:
        return self._first(lambda real: real.stat().st_uid, path)

    def link(self, path: str) -> str | None:
        """The last part of a link's target; None if not a link."""
        parent, _, name = path.rpartition("/")
        try:
            return os.path.basename(os.readlink(self.real(parent) / name))
        except OSError:
            return None

    def resolve(self, path: str) -> str:
        """`path` without links, resolved as by a process inside `root`.

        In a container with the host at /host, the kernel would resolve absolute links in the container's own tree.
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
            except OSError:  # not a link, or missing
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
        """The path of a machine's file for us. For our own root the kernel resolves links, ten times faster."""
        return Path(path) if self.root == Path("/") else self.root / self.resolve(path).lstrip("/")

    def _first(self, read: Callable[[Path], T], *paths: str) -> T | None:
        problems = []
        for path in paths:
            try:
                return read(self.real(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems.append(f"{path}: {error.strerror}")
        self.problems += [problem for problem in problems if problem not in self.problems]
        return None


def _bytes_of(path: Path, most: int) -> bytes:
    # O_NONBLOCK: never block when opening a FIFO.
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        chunks, left = [], most
        while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)


def no_further_facts(_host: Host) -> ProbeResult:
    """For probes whose facts are all single files."""
    return ProbeResult()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Declared facts, and a function for those that are not single files."""

    facts: Mapping[str, Fact]
    collect: Callable[[Host], ProbeResult] = no_further_facts

    def run(self, host: Host) -> ProbeResult:
        read = {
            name: fact.parse(text)
            for name, fact in self.facts.items()
            if fact.parse and (text := host.read(*fact.source.split())) is not None
        }
        collected = self.collect(host)
        return ProbeResult(facts={**available(**read), **collected.facts}, gpus=collected.gpus)


def available(**facts: str | None) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value}
