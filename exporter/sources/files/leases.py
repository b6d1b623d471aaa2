"""Decides which of several nodes counts a log that all of them watch, by claims in a folder on the shared file system.

One node claims a log, preferably the one that runs its job. A node keeps its claims while it renews its own file. When it
stops, other nodes claim its logs and continue at its offsets. Nothing is written into the folders of the logs.

Each node checks four others every ten seconds, so a fleet's requests grow linearly with the number of nodes.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from exporter.sources.files.lease_files import ClaimFiles, NodeFiles, key_of

RENEW_SECONDS = 10.0
HOLD_SECONDS = 15.0  # without a renewal; then a node counts nothing before it has claimed its logs again
DEAD_SECONDS = 30.0  # without a renewal, by the file system's clock; then others claim its logs
CONFIRM_SECONDS = 3.0  # between two looks at a node that seems dead
WAIT_SECONDS = 20.0  # so long is a log left to a node that runs its job
LOOKS = 4  # nodes looked at in ten seconds: with 1,000 nodes, one that died is overlooked by all in 2% of the rounds

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
        choose: Callable[[list[str]], list[str]] = lambda nodes: random.sample(nodes, min(LOOKS, len(nodes))),
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
        known = self._claims.known.get(path)
        if not self.holds or (known is not None and known.node not in (self._nodes.node, "")):
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
            self._claims.known.clear()
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

    def _look_at_others(self) -> None:
        others = {claim.node for path, claim in self._claims.known.items() if path not in self._mine}
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
        for path, claim in list(self._claims.known.items()):
            if claim.node == node and os.path.exists(path):
                self._claim(path, claim.number + 1, offsets.get(key_of(path), claim.offset))
