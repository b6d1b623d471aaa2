"""Pulls the journals of all nodes into the history, a bounded number of nodes at a time.

Threads ask the nodes; the caller's thread alone writes to the history. Nodes are independent: one that is slow, absent or
lies delays and harms no other.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import duckdb

from exporter.config.pull import PullConfig
from exporter.fleet.history.folder_ingest import Ingested
from exporter.fleet.history.pulled import (
    REFUSED_NAME,
    PulledPart,
    cursors,
    put_refused_names,
    put_spoken,
    put_targets,
    spoken,
    store_parts,
    target_rows,
)
from exporter.fleet.history.retention import ServiceClock
from exporter.fleet.pull.address_book import AddressBook, Spoken
from exporter.fleet.pull.client import NodeAccess, PullFailed, node_headers
from exporter.fleet.pull.status import STATES, NodeStatus, PullCounts
from exporter.fleet.pull.step import DROPPED, NOT_A_RECORD, Step, step
from exporter.fleet.pull.target_discovery import Discovered, TargetDiscovery
from exporter.fleet.pull.targets import Target, problem_text
from exporter.net.credentials import ContextCache

BATCH_BYTES = 32 << 20  # of one transaction
LINGER_SECONDS = 0.2  # that a transaction waits for more nodes
CYCLE_SECONDS = 10.0  # after which a cycle ends, for the caller's other work; nodes that are being asked stay so
STATUS_SECONDS = 5.0  # between two writings of the table of targets

Job = Callable[[], object]


@dataclass(frozen=True, slots=True)
class _PullAnswer:
    """What came of asking a node."""

    node: str
    step: Step | None
    failure: PullFailed | None = None


class Puller:
    """Call it with a connection to the history: it pulls what is due and returns. Call it again soon."""

    def __init__(
        self, config: PullConfig, log: Any, *, clock: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.counts = PullCounts()
        self._log = log
        self._clock = clock or ServiceClock()  # for what is stored and shown
        self._monotonic = monotonic  # for what is due: nobody sets it
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._nodes: dict[str, NodeStatus] | None = None
        self._gone: dict[str, NodeStatus] = {}  # targets that disappeared while they were asked
        self._asked: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._finding = False
        self._status_at = float("-inf")
        self._changed = False
        self._book = AddressBook()
        self._stored_book: Mapping[str, Spoken] = {}
        self._refused: Mapping[str, str] = {}  # claims to be a node, as of the last search
        self._new_refused: dict[str, str] = {}  # those that are not stored yet
        self.use(config)

    def use(self, config: PullConfig) -> None:
        """Work with a configuration from the next cycle on. From any thread."""
        self._pending = config, TargetDiscovery(config, self._book), ContextCache(config.tls)
        self._find_at = float("-inf")

    def close(self, timeout: float = 0.0) -> None:
        """End the threads, each after its request; wait at most `timeout` seconds for them."""
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        self._threads = []

    def __call__(self, db: duckdb.DuckDBPyConnection, stop: Callable[[], bool]) -> Ingested:
        """One cycle. Raises duckdb.Error if the history cannot be written: then nothing is lost, and the next one tries."""
        begin = time.monotonic()
        self._config, self._discovery, self._contexts = self._pending
        if self._nodes is None:
            self._load(db)
        parts: dict[str, tuple[PulledPart, Step]] = {}
        records = 0
        while not stop():
            is_late = time.monotonic() - begin > CYCLE_SECONDS
            if not is_late:
                self._submit(parts)
            is_over = (is_late or not (self._asked or self._finding)) and not parts
            if is_over:
                break
            results = self._take()
            for result in results:
                if isinstance(result, Discovered):
                    self._use_discovered(result)
                elif isinstance(result, _PullAnswer):
                    self._answered(result, parts)
            size = sum(pulled.size for _, pulled in parts.values())
            if parts and (not results or is_late or size >= BATCH_BYTES or not self._asked):
                records += self._store(db, parts)
        self._put_status(db, stop)
        return Ingested(files=len(self._nodes or ()), records=records, bad_lines=0, seconds=time.monotonic() - begin)

    # -- asking

    def _submit(self, parts: dict[str, tuple[PulledPart, Step]]) -> None:
        now = self._monotonic()
        if not self._finding and time.monotonic() >= self._find_at:
            self._finding = True
            self._run(_finding(self._discovery))
        room, taken = max(self._config.concurrency - len(self._asked), 0), self._asked | parts.keys()
        # Only with room: a search through 20,000 nodes for each answer takes longer than to ask them.
        due = [n for name, n in (self._nodes or {}).items() if n.due <= now and name not in taken] if room else []
        due = sorted(due, key=lambda node: node.due)[:room]
        access = self._access() if due else None
        for node in due if access else ():
            assert access is not None
            self._asked.add(node.target.node)
            self._run(_asking(node, access, self._config))

    def _access(self) -> NodeAccess | None:
        """How to ask; None if a file of the configuration cannot be read."""
        config = self._config
        try:
            node_headers(config, ())
            return NodeAccess(config.timeout, {}, self._contexts.get(), config.server_name)
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            for node in (self._nodes or {}).values():
                if node.due <= self._monotonic():
                    self._failed(node, PullFailed("settings", f"a file of pull cannot be read: {reason}"))
            return None

    def _run(self, job: Job) -> None:
        if len(self._threads) < self._config.concurrency + 1:  # one more for discovery
            thread = threading.Thread(target=self._work, name="pull", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._results.put(job())

    def _take(self) -> list[object]:
        """The results that are there; waits a moment for the first one."""
        results: list[object] = []
        with suppress(queue.Empty):
            results.append(self._results.get(timeout=LINGER_SECONDS))
            while len(results) < self._config.concurrency:
                results.append(self._results.get_nowait())
        return results

    # -- answers

    def _use_discovered(self, discovered: Discovered) -> None:
        assert self._nodes is not None
        now, at = self._clock(), self._monotonic()
        self._finding, self._find_at = False, time.monotonic() + self._config.interval
        problem = problem_text(discovered.problems)
        if problem and problem != self.counts.discovery_problem:
            self._log.warning("targets cannot all be found", reason=problem)
        self.counts.discovery_problem, self.counts.discovery_ok = problem, not discovered.problems
        fresh = {node: reason for node, reason in discovered.refused.items() if self._refused.get(node) != reason}
        self._refused = discovered.refused
        self._new_refused |= fresh
        self.counts.gaps.update({REFUSED_NAME: len(fresh)} if fresh else {})
        if discovered.targets is None:
            return
        for name in self._nodes.keys() - discovered.targets.keys():
            self._gone[name] = self._nodes.pop(name)
            self._changed = True
        for name, target in discovered.targets.items():
            status = self._nodes.get(name)
            if status is None:
                earlier = self._gone.pop(name, None)
                cursor, row = (earlier.cursor, earlier.row) if earlier else (None, None)
                self._nodes[name] = NodeStatus.new(target, cursor, row, now=now, at=at)
                self._changed = True
            elif status.target != target:
                status.target, status.tag, status.due = target, "", at
                status.row = replace(status.row, address=target.base)

    def _answered(self, answer: _PullAnswer, parts: dict[str, tuple[PulledPart, Step]]) -> None:
        self._asked.discard(answer.node)
        node = (self._nodes or {}).get(answer.node)
        if node is None:
            return  # no target any more; it was read, but not stored
        if answer.step is None:
            assert answer.failure is not None
            self._failed(node, answer.failure)
            return
        pulled = answer.step
        if pulled.cursor is None or (pulled.cursor == node.cursor and not pulled.gaps):
            self._read(node, pulled, 0)
            return
        gaps = [(gap.kind, gap.count, gap.message) for gap in pulled.gaps]
        for (reason, why), count in pulled.cleaned.refused.items():
            gaps.append((f"refused_{reason}", count, _REFUSED[reason].format(why=why)))
        part = PulledPart(node=answer.node, rows=pulled.cleaned.rows, cursor=pulled.cursor, gaps=tuple(gaps))
        parts[answer.node] = part, pulled

    def _store(self, db: duckdb.DuckDBPyConnection, parts: dict[str, tuple[PulledPart, Step]]) -> int:
        """Store parts, and let their nodes go on. If that fails, each node goes on at its old cursor."""
        stored = dict(parts)
        parts.clear()
        left_out = store_parts(db, [part for part, _ in stored.values()], self._clock())
        assert self._nodes is not None
        for name, (_, pulled) in stored.items():
            if name in self._nodes:
                self._read(self._nodes[name], pulled, left_out.get(name, 0))
        return sum(len(part.rows) for part, _ in stored.values())

    def _read(self, node: NodeStatus, pulled: Step, unusable: int) -> None:
        refused = pulled.cleaned.refused.total() + unusable
        lost = sum(gap.count for gap in pulled.gaps if gap.kind == DROPPED)
        self.counts.bytes += pulled.size
        self.counts.records += len(pulled.cleaned.rows) - unusable
        for (reason, _), count in (*pulled.cleaned.refused.items(), ((NOT_A_RECORD, ""), unusable)):
            if count:
                self.counts.refused[reason] += count
        for gap in pulled.gaps:
            self.counts.gaps[gap.kind] += gap.count
            self._log.warning("gap in a pulled journal", node=node.target.node, what=gap.message)
        node.cursor, node.tag = pulled.cursor, pulled.tag
        row = node.row
        node.row = replace(
            row, records=row.records + len(pulled.cleaned.rows) - unusable, refused=row.refused + refused,
            lost_segments=row.lost_segments + lost,
        )  # fmt: skip
        node.read(
            pulled.size, pulled.bytes_left, more=pulled.more, now=self._clock(), at=self._monotonic(),
            interval=self._config.interval,
        )  # fmt: skip
        self._changed = True

    def _failed(self, node: NodeStatus, failure: PullFailed) -> None:
        if not node.failures:
            self._log.warning("a node cannot be pulled", node=node.target.node, reason=str(failure))
        self.counts.failures[failure.reason] += 1
        node.failed(failure.reason, str(failure), now=self._clock(), at=self._monotonic())
        self._changed = True

    # -- state

    def _load(self, db: duckdb.DuckDBPyConnection) -> None:
        """What an earlier process stored."""
        self._nodes = {}
        rows = target_rows(db)
        # A store of an earlier version knows the addresses of its targets only.
        hosts = {name: urlsplit(row.address).hostname or "" for name, row in rows.items()}
        now = self._clock()
        self._stored_book = {name: Spoken(*one) for name, one in spoken(db).items()}
        self._book.spoken = {name: Spoken(host, now) for name, host in hosts.items() if host} | dict(self._stored_book)
        for name, cursor in cursors(db).items():
            target = _unknown_target(name)
            self._gone[name] = NodeStatus.new(target, cursor, rows.get(name), now=self._clock(), at=self._monotonic())

    def _put_status(self, db: duckdb.DuckDBPyConnection, stop: Callable[[], bool]) -> None:
        assert self._nodes is not None
        now = self._monotonic()
        targets, lag = dict.fromkeys(STATES, 0), dict.fromkeys(STATES, 0.0)
        for node in self._nodes.values():
            targets[node.row.state] += 1
            if node.current_at is not None:
                lag[node.row.state] = max(lag[node.row.state], now - node.current_at)
        self.counts.targets, self.counts.lag = targets, lag
        if self._new_refused:
            put_refused_names(db, self._new_refused, self._clock())
            self._new_refused = {}
        book = self._book.spoken
        if {node: one.address for node, one in book.items()} != {
            node: one.address for node, one in self._stored_book.items()
        }:
            put_spoken(db, book)
            self._stored_book = book
        if self._changed and (stop() or time.monotonic() - self._status_at > STATUS_SECONDS):
            put_targets(db, [node.row for node in self._nodes.values()])
            self._changed, self._status_at = False, time.monotonic()


_REFUSED = {
    "other_node": "records of another node than the target: {why}; check the label of pull.node_label, or the node",
    "not_a_record": "lines that are not records: {why}",
    "too_long": "records that are {why}",
}


def _asking(node: NodeStatus, access: NodeAccess, config: PullConfig) -> Job:
    """Asks a node for its next range, with what is for this node alone."""
    target, cursor, tag = node.target, node.cursor, node.tag

    def ask() -> _PullAnswer:
        try:
            own = replace(access, headers=node_headers(config, target.audience))
            return _PullAnswer(target.node, step(target.base, target.node, cursor, tag, own))
        except PullFailed as error:
            return _PullAnswer(target.node, None, error)
        except Exception as error:  # our own bug, which must not end the thread
            return _PullAnswer(target.node, None, PullFailed("internal", f"{error!r}; please report it"))

    return ask


def _finding(discovery: TargetDiscovery) -> Job:

    def find() -> Discovered:
        try:
            return discovery.find()
        except Exception as error:  # our own bug, which must not end the thread
            return Discovered(targets=None, problems=(f"{error!r}; please report it",))

    return find


def _unknown_target(node: str) -> Target:
    """Of a node that an earlier process has pulled, until it is found again."""
    return Target(node=node, base="")
