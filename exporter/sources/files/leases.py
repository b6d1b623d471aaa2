"""Decides which of several nodes counts a log that all of them watch, by claims in a folder on the shared file system.

One node claims a log, preferably the one that runs its job. A node keeps its claims while it renews its own file. When it
stops, other nodes claim its logs and continue at its offsets. Nothing is written into the folders of the logs.

Each node checks four others every ten seconds, so a fleet's requests grow linearly with the number of nodes.
"""

import contextlib
import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
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
        fields = {"sequence": self._sequence, "began": self._began, "machine": self.machine, "node": self.node}
        text = json.dumps({**fields, "offsets": self._offsets}).encode()
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
        self.latest: dict[str, Claim] = {}  # the latest one of each path, as far as it has been read
        self._folder = folder / "logs"
        self._draft = folder / "nodes" / f"{_safe(node)}.{_safe(machine)}claim"
        self._node = node
        self._machine = machine

    def current(self, path: str) -> Claim | None:
        claim = self.latest.get(path)
        number = claim.number if claim else 0
        while (following := self._read(path, number + 1)) is not None:
            claim, number = following, number + 1
        if claim is not None:
            self.latest[path] = claim
            while len(self.latest) > MAX_PATHS:
                del self.latest[next(iter(self.latest))]
        return claim

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
        self.latest.pop(path, None)
        claim = self.current(path)
        mine = (self._node, self._machine, number)
        return claim is not None and (claim.node, claim.machine, claim.number) == mine

    def delete(self, path: str) -> None:
        """Delete the known claims of a log."""
        claim = self.latest.pop(path, None)
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


RENEW_SECONDS = 10.0
HOLD_SECONDS = 15.0  # without a renewal; then a node counts nothing before it has claimed its logs again
DEAD_SECONDS = 30.0  # without a renewal, by the file system's clock; then others claim its logs
CONFIRM_SECONDS = 3.0  # between two looks at a node that seems dead
WAIT_SECONDS = 20.0  # so long is a log left to a node that runs its job
_CHANCE = random.Random()  # noqa: S311 (spreads checks; others may seed the global one)
CHECKED_NODES = (
    4  # nodes looked at in ten seconds: with 1,000 nodes, one that died is overlooked by all in 2% of the rounds
)

ANOTHER = (
    "{files.folder}: another machine is called {files.node} too, and counts these logs; give each its own name "
    "(node in the configuration)"
)


class Leases:
    """The claims of one node on the logs of one source. holds: whether the node may count now. problem: why not.

    machine: what tells it from another machine with its name, of which only one counts.
    clock: seconds that also pass while the machine sleeps.
    """

    def __init__(
        self,
        folder: str,
        node: str,
        runs_here: Callable[[str], bool],
        *,
        machine: str = "",
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        choose: Callable[[list[str]], list[str]] = lambda nodes: _CHANCE.sample(nodes, min(CHECKED_NODES, len(nodes))),
    ) -> None:
        self.holds = False
        self.problem = ""
        self._nodes = NodeFiles(Path(folder), node, machine)
        self._claims = ClaimFiles(Path(folder), node, machine)
        self._runs_here = runs_here
        self._clock = clock
        self._choose = choose
        self._mine: set[str] = set()
        self._seen: dict[str, float] = {}
        self._suspects: dict[str, float] = {}
        self._begin: dict[str, int] = {}
        self._renewed = float("-inf")

    @property
    def folder(self) -> str:
        return str(self._nodes.folder)

    def tick(self, paths: Iterable[str]) -> set[str]:
        """Renew if due, and claim the logs of dead nodes. Returns those of `paths` that another node has claimed."""
        now = self._clock()
        lost: set[str] = set()
        try:
            if now - self._renewed >= RENEW_SECONDS:
                if self._nodes.is_only(now) and self._nodes.begin(now):
                    lost = self._renew(paths, now)
                else:
                    self.holds, self._mine, self._renewed = False, set(), float("-inf")
                    self.problem = ANOTHER.format(files=self._nodes) if self._nodes.yields else ""
                    return set(paths) if self._nodes.yields else set()
                self._check_others()
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
        latest = self._claims.latest.get(path)
        if not self.holds or (latest is not None and latest.node not in (self._nodes.node, "")):
            return False  # if it is a third node's by now, we learn that when this one seems dead
        try:
            claim = self._claims.current(path)
            if claim is not None and claim.node:
                return claim.node == self._nodes.node and self._claim_again(path)
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
        if not self.holds:
            return
        try:
            self._nodes.publish({key_of(path): offset for path, offset in offsets.items() if path in self._mine})
        except OSError as error:
            self._fail(error)

    def forget(self, path: str) -> None:
        """Release a finished log. If it was deleted, its claims are deleted too."""
        if path in self._mine and not os.path.lexists(path):
            self._mine.discard(path)
            self._claims.delete(path)

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self._nodes.folder}: {error.strerror or error}; make it writable for gpufault on every node"

    # -- claims

    def _renew(self, paths: Iterable[str], now: float) -> set[str]:
        lapsed = now - self._renewed > HOLD_SECONDS
        lost: set[str] = set()
        if lapsed:
            mine, self._mine = {*paths, *self._mine}, set()
            self._claims.latest.clear()
            lost = {path for path in sorted(mine) if os.path.lexists(path) and not self._claim_again(path)}
        self._renewed = now  # not before: a claim may fail, and until all have been tried again, nothing may be counted
        return lost

    def _claim_again(self, path: str) -> bool:
        """Claim one of our logs again after a missed renewal, unless another node has claimed it in the meantime."""
        claim = self._claims.current(path)
        if claim is None:
            return self._claim(path, 1, 0)
        if claim.node != self._nodes.node:
            return False
        earlier = (self._nodes.earlier or {}).get(key_of(path), claim.offset)
        return self._claim(path, claim.number + 1, earlier)

    def _claim(self, path: str, number: int, offset: int) -> bool:
        """Try to be the `number`th node that claims a log, to continue it at `offset`."""
        if not self._claims.make(path, number, offset):
            return False
        self._mine.add(path)
        self._seen.pop(path, None)
        if offset or number > 1:
            self._begin[path] = offset
        return True

    # -- other nodes

    def _check_others(self) -> None:
        others = {claim.node for path, claim in self._claims.latest.items() if path not in self._mine}
        for node in self._choose(sorted(others - {self._nodes.node})):
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
        return self._nodes.renewed_at(self._nodes.node) - self._nodes.renewed_at(node) > DEAD_SECONDS

    def _take_over(self, node: str) -> None:
        offsets = self._nodes.offsets_of(node)
        for path, claim in list(self._claims.latest.items()):
            if claim.node == node and os.path.exists(path):
                self._claim(path, claim.number + 1, offsets.get(key_of(path), claim.offset))
