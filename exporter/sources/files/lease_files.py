"""The files by which nodes share logs: what each node tells of itself, and which node has claimed which log.

A node's renewal and its offsets are one small file that is overwritten in place. A claim is made by `link`, which is atomic,
so the file system decides who was first. A machine writes its own id into both, since another may have its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

MAX_PATHS = 200_000  # known claims, 200 bytes each
MAX_NODE_BYTES = 16 << 20
RECENT_SECONDS = 15.0  # since another machine with this node's name renewed: it may still run
ALONE_SECONDS = 12.0  # so long is a sign of it waited for: more than between two renewals
GONE_SECONDS = 30.0  # without a sign of it
_SLOTS = (0, 1)


class Renewal(NamedTuple):
    """What a node wrote last into one of its files. began: the first sequence number of the process that wrote it."""

    sequence: int = 0
    began: int = 0
    machine: str = ""
    offsets: Mapping[str, int] = MappingProxyType({})


class NodeFiles:
    """The files of all nodes. Each node has two and overwrites the older one, so that one of them is always complete."""

    def __init__(self, folder: Path, node: str, machine: str) -> None:
        self.folder = folder
        self.node = node
        self.machine = machine
        self.earlier: Mapping[str, int] | None = None  # where an earlier process of this node was, once that is known
        self._offsets: dict[str, int] = {}
        self._sequence = self._began = 0
        self._wait_until = float("-inf")  # another machine with this name may count until then
        self._yields_to: int | None = None  # the last sequence number of one that does

    def begin(self, now: float) -> bool:
        """Renew, and before learn what an earlier process of this node has written, if that is not known.

        False if another machine has just renewed this node's name: then it has to be waited for.
        """
        if self.earlier is not None:
            self.renew()
            return True
        (self.folder / "nodes").mkdir(parents=True, exist_ok=True)
        last, before = self.last_of(self.node), self.renewed_at(self.node)
        self._sequence, self._began, self.earlier = last.sequence, last.sequence + 1, last.offsets
        self._offsets = dict(self.earlier)
        self.renew()
        is_recent = self.renewed_at(self.node) - before < RECENT_SECONDS
        may_run = last.machine not in ("", self.machine) and is_recent
        self._wait_until = now + ALONE_SECONDS if may_run else now
        return not may_run

    @property
    def yields(self) -> bool:
        """Whether another machine with this node's name, as one from the same image has, counts the logs."""
        return self._yields_to is not None

    def is_only(self, now: float) -> bool:
        """Whether no other machine with this node's name counts, as far as is known now. If one does, write no more."""
        if now < self._wait_until:
            return False
        last = self.last_of(self.node)
        if self._yields_to is None:
            others = [
                other
                for other in self._renewals(self.node)
                if other.machine != self.machine and other.sequence >= self._began
            ]
            if self.earlier is None or all((self._began, self.machine) < (it.began, it.machine) for it in others):
                return True
            self.earlier = None
        elif last.sequence == self._yields_to:
            self._yields_to = None  # it has gone
            return True
        self._yields_to, self._wait_until = last.sequence, now + GONE_SECONDS
        return False

    def publish(self, offsets: dict[str, int]) -> None:
        """Tell the other nodes where this one is in its logs, which are given by key, if that is news."""
        if offsets != self._offsets and self.earlier is not None:
            self._offsets = offsets
            self.renew()

    def renew(self) -> None:
        """Overwrite the older of our two files."""
        self._sequence += 1
        told = {"sequence": self._sequence, "began": self._began, "machine": self.machine, "node": self.node}
        text = json.dumps({**told, "offsets": self._offsets}).encode()
        data = b"%s\n%s\n" % (_digest(text), text)
        descriptor = os.open(self._path(self.node, self._sequence % 2), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def renewed_at(self, node: str) -> float:
        """When a node has renewed last, by the clock that dates the files; 0 if it has no file."""
        return max(_written_at(self._path(node, slot)) for slot in _SLOTS)

    def offsets_of(self, node: str) -> Mapping[str, int]:
        """Where a node was in its logs when it renewed last."""
        return self.last_of(node).offsets

    def last_of(self, node: str) -> Renewal:
        """What a node, or any machine with its name, wrote last."""
        return max(self._renewals(node), key=lambda last: last.sequence, default=Renewal())

    def _renewals(self, node: str) -> Iterator[Renewal]:
        """What is in a node's complete files."""
        for slot in _SLOTS:
            try:
                with open(self._path(node, slot), "rb") as file:
                    digest, _, text = file.read(MAX_NODE_BYTES).partition(b"\n")
            except FileNotFoundError:
                continue
            text = text.rstrip(b"\n")
            if digest != _digest(text):
                continue
            data: dict[str, Any] = json.loads(text)
            yield Renewal(data["sequence"], data.get("began", 0), data.get("machine", self.machine), data["offsets"])

    def _path(self, node: str, slot: int) -> Path:
        return self.folder / "nodes" / f"{_safe(node)}.{slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of a log; `number` counts its claims. offset: where the claiming node continues."""

    number: int
    node: str
    offset: int
    machine: str = ""


class ClaimFiles:
    """The claims of logs: a file for each."""

    def __init__(self, folder: Path, node: str, machine: str) -> None:
        self.known: dict[str, Claim] = {}  # the latest one of each path, as far as it has been read
        self._folder = folder / "logs"
        self._draft = folder / "nodes" / f"{_safe(node)}.{_safe(machine)}claim"
        self._node = node
        self._machine = machine

    def current(self, path: str) -> Claim | None:
        """The latest claim of a log."""
        known = self.known.get(path)
        number = known.number if known else 0
        while (found := self._read(path, number + 1)) is not None:
            known, number = found, number + 1
        if known is not None:
            self.known[path] = known
            while len(self.known) > MAX_PATHS:
                del self.known[next(iter(self.known))]
        return known

    def make(self, path: str, number: int, offset: int) -> bool:
        """Try to be the `number`th node that claims a log."""
        target = self._path(path, number)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._draft.unlink(missing_ok=True)
        self._draft.write_text(
            json.dumps({
                "node": self._node, "machine": self._machine, "path": os.fsencode(path).decode("latin-1"), "offset": offset,
            })
        )  # fmt: skip
        # It may exist and be ours: where a server's answer got lost, the request was repeated.
        with contextlib.suppress(FileExistsError):
            os.link(self._draft, target)
        self.known.pop(path, None)
        claim = self.current(path)
        mine = (self._node, self._machine, number)
        return claim is not None and (claim.node, claim.machine, claim.number) == mine

    def delete(self, path: str) -> None:
        """Delete the known claims of a log."""
        claim = self.known.pop(path, None)
        for number in range(1, claim.number + 1 if claim else 1):
            with contextlib.suppress(OSError):
                self._path(path, number).unlink()

    def _read(self, path: str, number: int) -> Claim | None:
        try:
            text = self._path(path, number).read_bytes()
        except FileNotFoundError:
            return None
        try:
            data = json.loads(text)
            machine = str(data.get("machine", ""))
            return Claim(number=number, node=str(data["node"]), offset=max(0, int(data["offset"])), machine=machine)
        except (ValueError, LookupError, TypeError):
            return Claim(number=number, node="", offset=0)  # nobody's: the next claim counts

    def _path(self, path: str, number: int) -> Path:
        key = key_of(path)
        return self._folder / key[:2] / f"{key}.{number}"


def key_of(path: str) -> str:
    """What stands for a log's path in the files."""
    return hashlib.blake2b(os.fsencode(path), digest_size=12).hexdigest()


def _written_at(path: Path) -> float:
    """When a file was written; 0 if it is missing. It is opened because NFS clients cache `stat` for a minute."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0.0
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()


def _safe(node: str) -> str:
    """A file name for a node's name."""
    return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}" for c in node)[:200]
