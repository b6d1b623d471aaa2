"""The files by which nodes share logs: what each node tells of itself, and which node has claimed which log.

A node's renewal and its offsets are one small file that is overwritten in place. A claim is made by `link`, which is atomic,
so the file system decides who was first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_PATHS = 200_000  # known claims, 200 bytes each
MAX_NODE_BYTES = 16 << 20
_SLOTS = (0, 1)


class NodeFiles:
    """The files of all nodes. Each node has two and overwrites the older one, so that one of them is always complete."""

    def __init__(self, folder: Path, node: str) -> None:
        self.folder = folder
        self.node = node
        self.earlier: dict[str, int] | None = None  # where an earlier process of this node was, once that is known
        self._offsets: dict[str, int] = {}
        self._sequence = 0

    def begin(self) -> None:
        """Learn what an earlier process of this node has written, if that is not known yet."""
        if self.earlier is None:
            (self.folder / "nodes").mkdir(parents=True, exist_ok=True)
            self._sequence, self.earlier = self._read(self.node)
            self._offsets = dict(self.earlier)

    def publish(self, offsets: dict[str, int]) -> None:
        """Tell the other nodes where this one is in its logs, which are given by key, if that is news."""
        if offsets != self._offsets and self.earlier is not None:
            self._offsets = offsets
            self.renew()

    def renew(self) -> None:
        """Overwrite the older of our two files."""
        self._sequence += 1
        text = json.dumps({"sequence": self._sequence, "node": self.node, "offsets": self._offsets}).encode()
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

    def offsets_of(self, node: str) -> dict[str, int]:
        """Where a node was in its logs when it renewed last."""
        return self._read(node)[1]

    def _read(self, node: str) -> tuple[int, dict[str, int]]:
        """The sequence number and the offsets in a node's latest complete file."""
        best: tuple[int, dict[str, int]] = 0, {}
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
            if data["sequence"] > best[0]:
                best = data["sequence"], data["offsets"]
        return best

    def _path(self, node: str, slot: int) -> Path:
        return self.folder / "nodes" / f"{_safe(node)}.{slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of a log; `number` counts its claims. offset: where the claiming node continues."""

    number: int
    node: str
    offset: int


class ClaimFiles:
    """The claims of logs: a file for each."""

    def __init__(self, folder: Path, node: str) -> None:
        self.known: dict[str, Claim] = {}  # the latest one of each path, as far as it has been read
        self._folder = folder / "logs"
        self._draft = folder / "nodes" / f"{_safe(node)}.claim"
        self._node = node

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
            json.dumps({"node": self._node, "path": os.fsencode(path).decode("latin-1"), "offset": offset})
        )
        # It may exist and be ours: where a server's answer got lost, the request was repeated.
        with contextlib.suppress(FileExistsError):
            os.link(self._draft, target)
        self.known.pop(path, None)
        claim = self.current(path)
        return claim is not None and claim.node == self._node and claim.number == number

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
            return Claim(number=number, node=str(data["node"]), offset=max(0, int(data["offset"])))
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
