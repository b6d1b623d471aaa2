"""Decides which of several nodes counts a log that all of them watch, by claims in a folder on the shared file system.

One node claims a log, preferably the one that runs its job; `link` is atomic, so the file system decides who was first. A
node keeps its claims while it renews its own file. When it stops, other nodes claim its logs and continue at its offsets.
Nothing is written into the folders of the logs.

A node's renewal and its offsets are one small file that is overwritten in place. Each node checks four others every ten
seconds, so a fleet's requests grow linearly with the number of nodes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RENEW_SECONDS = 10.0
HOLD_SECONDS = 15.0  # without a renewal; then a node counts nothing before it has claimed its logs again
DEAD_SECONDS = 30.0  # without a renewal, by the file system's clock; then others claim its logs
CONFIRM_SECONDS = 3.0  # between two looks at a node that seems dead
WAIT_SECONDS = 20.0  # so long is a log left to a node that runs its job
LOOKS = 4  # nodes looked at in ten seconds: with 1,000 nodes, one that died is overlooked by all in 2% of the rounds
MAX_PATHS = 200_000  # known claims, 200 bytes each
MAX_NODE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of a log; `number` counts its claims. offset: where the claiming node continues."""

    number: int
    node: str
    offset: int


class Leases:
    """The claims of one node on the logs of one source. holds: whether the node may count now. problem: why not.

    clock: seconds that also pass while the machine sleeps.
    """

    def __init__(
        self,
        folder: str,
        node: str,
        runs_here: Callable[[str], bool],
        *,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        choose: Callable[[list[str]], list[str]] = lambda nodes: random.sample(nodes, min(LOOKS, len(nodes))),
    ) -> None:
        self.holds = False
        self.problem = ""
        self._folder = Path(folder)
        self._node = node
        self._runs_here = runs_here
        self._clock = clock
        self._choose = choose
        self._claims: dict[str, Claim] = {}
        self._mine: set[str] = set()
        self._seen: dict[str, float] = {}
        self._suspects: dict[str, float] = {}
        self._begin: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        self._earlier: dict[str, int] | None = None  # where an earlier process of this node was
        self._sequence = 0
        self._renewed = self._looked = float("-inf")

    def tick(self, paths: Iterable[str]) -> set[str]:
        """Renew if due, and claim the logs of dead nodes. Returns those of `paths` that another node has claimed."""
        now = self._clock()
        try:
            lost = self._keep(paths, now)
            if now - self._looked >= RENEW_SECONDS:
                self._looked = now
                self._look_at_others()
            self._confirm(now)
        except OSError as error:
            self._fail(error)
            self.holds = now - self._renewed <= HOLD_SECONDS
            return set()
        self.problem, self.holds = "", True
        return lost

    def wants(self, path: str) -> bool:
        """Whether this node counts a log that it has found."""
        if path in self._mine:
            return True
        known = self._claims.get(path)
        if not self.holds or (known is not None and known.node not in (self._node, "")):
            return False  # if it is a third node's by now, we learn that when this one seems dead
        try:
            claim = self._current(path)
            if claim is not None and claim.node:
                return claim.node == self._node and self._claim_again(path)
            first = self._seen.setdefault(path, self._clock())
            if self._clock() - first < WAIT_SECONDS and not self._runs_here(path):
                return False
            return self._claim(path, claim.number + 1 if claim else 1, 0)
        except OSError as error:
            self._fail(error)
            return False

    def begin_of(self, path: str) -> int | None:
        """The offset at which to continue a claimed log; None to begin as usual."""
        return self._begin.pop(path, None)

    def publish(self, offsets: Mapping[str, int]) -> None:
        """Publish our offsets to the other nodes. Call it after a commit and before its metrics are shown."""
        ours = {_key(path): offset for path, offset in offsets.items() if path in self._mine}
        if ours == self._offsets or self._earlier is None:
            return
        self._offsets = ours
        try:
            self._write()
        except OSError as error:
            self._fail(error)

    def forget(self, path: str) -> None:
        """Release a finished log. If it was deleted, its claims are deleted too."""
        if path not in self._mine or os.path.lexists(path):
            return
        claim = self._claims.pop(path, None)
        self._mine.discard(path)
        for number in range(1, claim.number + 1 if claim else 1):
            with contextlib.suppress(OSError):
                self._file(path, number).unlink()

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self._folder}: {error.strerror or error}; make it writable for gpufault on every node"

    # -- claims

    def _keep(self, paths: Iterable[str], now: float) -> set[str]:
        if now - self._renewed < RENEW_SECONDS:
            return set()
        lapsed = now - self._renewed > HOLD_SECONDS
        if self._earlier is None:
            (self._folder / "nodes").mkdir(parents=True, exist_ok=True)
            self._sequence, self._earlier = _read_node(self._folder, self._node)
            self._offsets = dict(self._earlier)
        self._write()
        self._renewed = now
        if not lapsed:
            return set()
        mine, self._mine, self._claims = {*paths, *self._mine}, set(), {}
        return {path for path in sorted(mine) if os.path.lexists(path) and not self._claim_again(path)}

    def _claim_again(self, path: str) -> bool:
        """Claim one of our logs again after a missed renewal, unless another node has claimed it in the meantime."""
        claim = self._current(path)
        if claim is None:
            return self._claim(path, 1, 0)
        if claim.node != self._node:
            return False
        earlier = (self._earlier or {}).get(_key(path), claim.offset)
        return self._claim(path, claim.number + 1, earlier)

    def _claim(self, path: str, number: int, offset: int) -> bool:
        """Try to be the `number`th node that claims a log."""
        target = self._file(path, number)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = self._folder / "nodes" / f"{_safe(self._node)}.claim"
        draft.unlink(missing_ok=True)
        draft.write_text(
            json.dumps({"node": self._node, "path": os.fsencode(path).decode("latin-1"), "offset": offset})
        )
        # It may exist and be ours: where a server's answer got lost, the request was repeated.
        with contextlib.suppress(FileExistsError):
            os.link(draft, target)
        self._claims.pop(path, None)
        claim = self._current(path)
        if claim is None or claim.node != self._node or claim.number != number:
            return False
        self._mine.add(path)
        self._seen.pop(path, None)
        if offset or number > 1:
            self._begin[path] = offset
        return True

    def _current(self, path: str) -> Claim | None:
        """The latest known claim of a log."""
        known = self._claims.get(path)
        number = known.number if known else 0
        while (found := self._read_claim(path, number + 1)) is not None:
            known, number = found, number + 1
        if known is not None:
            self._claims[path] = known
            while len(self._claims) > MAX_PATHS:
                del self._claims[next(iter(self._claims))]
        return known

    def _read_claim(self, path: str, number: int) -> Claim | None:
        try:
            text = self._file(path, number).read_bytes()
        except FileNotFoundError:
            return None
        try:
            data = json.loads(text)
            return Claim(number=number, node=str(data["node"]), offset=max(0, int(data["offset"])))
        except (ValueError, LookupError, TypeError):
            return Claim(number=number, node="", offset=0)  # nobody's: the next claim counts

    def _file(self, path: str, number: int) -> Path:
        key = _key(path)
        return self._folder / "logs" / key[:2] / f"{key}.{number}"

    # -- other nodes

    def _look_at_others(self) -> None:
        owners = sorted({claim.node for path, claim in self._claims.items() if path not in self._mine} - {self._node})
        for node in self._choose(owners):
            if node not in self._suspects and self._is_dead(node):
                self._suspects[node] = self._clock()

    def _confirm(self, now: float) -> None:
        for node, since in list(self._suspects.items()):
            if now - since >= CONFIRM_SECONDS:
                del self._suspects[node]
                if self._is_dead(node):
                    self._take_over(node)

    def _is_dead(self, node: str) -> bool:
        """Whether a node has not renewed for long, by the clock that dates the files: that of a server, or of all clients."""
        seen = max((_renewed_at(self._folder, node, slot) for slot in (0, 1)), default=0.0)
        now = max(_renewed_at(self._folder, self._node, slot) for slot in (0, 1))
        return now - seen > DEAD_SECONDS

    def _take_over(self, node: str) -> None:
        _, offsets = _read_node(self._folder, node)
        for path, claim in list(self._claims.items()):
            if claim.node == node and os.path.exists(path):
                self._claim(path, claim.number + 1, offsets.get(_key(path), claim.offset))

    def _write(self) -> None:
        """Overwrite the older of our two files, so that one of them is always complete."""
        self._sequence += 1
        text = json.dumps({"sequence": self._sequence, "node": self._node, "offsets": self._offsets})
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        path = _node_file(self._folder, self._node, self._sequence % 2)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            data = f"{digest}\n{text}\n".encode()
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _renewed_at(folder: Path, node: str, slot: int) -> float:
    """When a node's file was written; 0 if missing. It is opened because NFS clients cache `stat` for a minute."""
    try:
        descriptor = os.open(_node_file(folder, node, slot), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0.0
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _read_node(folder: Path, node: str) -> tuple[int, dict[str, int]]:
    """The sequence number and the offsets in a node's latest complete file."""
    best: tuple[int, dict[str, int]] = 0, {}
    for slot in (0, 1):
        try:
            with open(_node_file(folder, node, slot), "rb") as file:
                digest, _, text = file.read(MAX_NODE_BYTES).partition(b"\n")
        except FileNotFoundError:
            continue
        text = text.rstrip(b"\n")
        if digest.decode(errors="replace") != hashlib.blake2b(text, digest_size=8).hexdigest():
            continue
        data: dict[str, Any] = json.loads(text)
        if data["sequence"] > best[0]:
            best = data["sequence"], data["offsets"]
    return best


def _node_file(folder: Path, node: str, slot: int) -> Path:
    return folder / "nodes" / f"{_safe(node)}.{slot}"


def _safe(node: str) -> str:
    """A file name for a node's name."""
    return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}" for c in node)[:200]


def _key(path: str) -> str:
    return hashlib.blake2b(os.fsencode(path), digest_size=12).hexdigest()
