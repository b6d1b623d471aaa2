"""Reads the faults of the node daemons and writes changes to the API server. Keeps no state across restarts.

A daemon speaks for the node that it runs on only, as the API server or a target file says, and for pods on that node.
It is level-triggered: the next cycle corrects a failed one. Nodes are independent of each other.
"""

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from exporter.config.pull import PullConfig
from exporter.fleet.pull.client import NodeAccess, PullFailed, ask, node_headers
from exporter.fleet.pull.pods import Pods
from exporter.fleet.pull.target_discovery import TargetDiscovery
from exporter.fleet.pull.targets import Target, problem_text
from exporter.kubernetes.api_client import ApiFailed, ApiServer
from exporter.kubernetes.condition import (
    NodeCondition,
    StoredCondition,
    condition_of,
    patch_of,
    stored_condition,
    unreachable,
)
from exporter.kubernetes.events import Event, events_of, to_create, to_update
from exporter.kubernetes.node_report import NodeReport, Pod, parse_report, pods_of
from exporter.net.credentials import ContextCache
from exporter.net.url import is_same_node

MAX_REPORT_BYTES = 1 << 20
MAX_INCIDENT_BYTES = 16 << 20
UNREACHABLE_SECONDS = 600.0  # without an answer, longer than an upgrade of the daemons takes
MAX_EVENTS = 50  # of a node in a cycle; the next one goes on


T = TypeVar("T")
Answer = NodeReport | PullFailed
Polled = tuple[Target | None, Answer]  # no target: the node has no daemon any more


@dataclass(slots=True)
class NodeState:
    """The state of one node. Used by one thread at a time. `sent`: how often each event was counted."""

    stored: StoredCondition | None = None
    uid: str = ""
    exists: bool = False
    answered_at: float = 0.0
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the last cycle went, for metrics and pages. Counts go on from cycle to cycle."""

    nodes: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    daemon_failures: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    ended: float = 0.0
    seconds: float = 0.0


class Reporter:
    """`cycle` does one round over all nodes; call it at an interval."""

    def __init__(
        self,
        config: PullConfig,
        server: ApiServer,
        pods: Pods,
        log: Any,
        *,
        heartbeat: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.status = Status()
        self._config = config
        self._server = server
        self._log = log
        self._heartbeat = heartbeat
        self._clock = clock
        self._pods = pods
        self._discovery = TargetDiscovery(config.model_copy(update={"dns_names": "kubernetes"}), pods=pods)
        self._contexts = ContextCache(config.tls)
        self._states: dict[str, NodeState] = {}
        self._requests: Counter[tuple[str, str]] = Counter()
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()  # of the counts and `_resting_until`
        self._resting_until = 0.0
        self._warned: dict[str, str] = {}
        self._started = clock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End a running cycle early. From any thread."""
        self._stopped.set()

    def cycle(self) -> Status:
        """Poll all daemons and write the differences."""
        began = time.monotonic()
        targets, problem = self._find()
        with ThreadPoolExecutor(self._config.concurrency, "node") as threads:
            nodes: dict[str, Polled] = dict(zip(targets, threads.map(self._poll, targets.values()), strict=True))
            absent = PullFailed("absent", "no target for this node")
            nodes |= dict.fromkeys(self._states.keys() - nodes.keys(), (None, absent))
            states = list(threads.map(self._report, nodes, nodes.values()))
        self.status = Status(
            nodes=Counter(states), requests=dict(self._requests), daemon_failures=dict(self._failures), problem=problem,
            ended=self._clock(), seconds=time.monotonic() - began,
        )  # fmt: skip
        return self.status

    def _find(self) -> tuple[dict[str, Target], str]:
        """The targets by node, and the first problem."""
        listing = self._discovery.find()
        problem = problem_text(listing.problems)
        self._warn("targets", "targets cannot all be found", problem)
        return listing.targets or {}, problem

    # -- one node (on a thread of the pool)

    def _poll(self, target: Target) -> tuple[Target, Answer]:
        try:
            if self._stopped.is_set():
                return target, PullFailed("stopped", "the reporter is stopping")
            report = parse_report(self._get(target, "/api/v1/faults", MAX_REPORT_BYTES))
            if not is_same_node(report.node, target.node):
                raise PullFailed("other_node", f"it says that it is node {report.node}")
            return target, replace(report, node=target.node)
        except PullFailed as error:
            failure = error
        except (ValueError, OverflowError) as error:
            failure = PullFailed("answer", str(error))
        with self._lock:
            self._failures[failure.reason] += 1
        return target, failure

    def _get(self, target: Target, path: str, most: int) -> bytes:
        try:
            headers, config = node_headers(self._config, target.audience), self._config
            access = NodeAccess(config.timeout, headers, self._contexts.get(), config.server_name)
        except (OSError, ValueError) as error:
            raise PullFailed("settings", f"a file of pull cannot be read: {error}") from None
        return ask(target.base + path, access, most)

    def _report(self, node: str, polled: Polled) -> str:
        """Write what has changed on a node. Returns its state for the metrics."""
        target, report = polled
        state = self._states.setdefault(node, NodeState(answered_at=self._started))
        now = self._clock()
        self._warn(node, "a daemon cannot be asked", str(report) if isinstance(report, PullFailed) else "")
        if now < self._resting_until or self._stopped.is_set():
            return "waiting"
        problem = ""
        try:
            if not state.exists:
                self._update(state, self._send_counted("condition", lambda: self._server.patch_node_status(node, {})))
            if target is None or isinstance(report, PullFailed):
                return self._silent(node, state, target, str(report), now)
            state.answered_at = now
            condition = condition_of(report)
            self._write(node, state, condition, now, is_heartbeat=True)
            self._send_events(state, report, target, now)
            return {"True": "fault", "False": "no_fault", "Unknown": "blind"}[condition.status]
        except ApiFailed as error:
            problem = str(error)
            if error.outcome != "gone":
                return "failed"
            del self._states[node]
            return "no_such_node"
        except Exception as error:  # our own bug, which must not keep the other nodes from being reported
            problem = f"{error!r}; please report it"
            return "failed"
        finally:
            self._warn(f"api {node}", "a node cannot be reported", problem)

    def _silent(self, node: str, state: NodeState, target: Target | None, why: str, now: float) -> str:
        """Handle a silent daemon: after a while the condition is Unknown; a node without a daemon is skipped."""
        if now - state.answered_at > UNREACHABLE_SECONDS:
            last = state.stored.condition if state.stored else _NEVER
            self._write(node, state, unreachable(last, why), now, is_heartbeat=False)
            if target is None:
                del self._states[node]
        return "unreachable"

    def _write(self, node: str, state: NodeState, condition: NodeCondition, now: float, *, is_heartbeat: bool) -> None:
        stored = state.stored
        age = now - stored.heartbeat if stored else 0.0
        spread = 0.75 + zlib.crc32(node.encode()) % 64 / 256  # else all nodes would be due in the same second
        if stored and stored.condition == condition and (not is_heartbeat or 0 <= age < self._heartbeat * spread):
            return
        is_same = stored is not None and stored.condition.status == condition.status and stored.transition > 0
        transition = stored.transition if stored and is_same else now
        change = patch_of(condition, transition=transition, now=now)
        self._update(state, self._send_counted("condition", lambda: self._server.patch_node_status(node, change)))

    def _update(self, state: NodeState, node: Mapping[str, Any]) -> None:
        """Update the state of a node from the API server's answer."""
        try:
            state.stored = stored_condition(node)
        except (ValueError, TypeError, AttributeError, OverflowError):
            state.stored = None
        state.uid, state.exists = str(node["metadata"].get("uid") or ""), True

    def _send_events(self, state: NodeState, report: NodeReport, target: Target, now: float) -> None:
        fresh = list(events_of(report, state.pods, now))
        if any(event.name not in state.sent for event in fresh):
            state.pods = self._crashed_pods(report, target)
            fresh = list(events_of(report, state.pods, now))
        due = [event for event in fresh if state.sent.get(event.name, 0) < event.count]
        for event in due[:MAX_EVENTS]:
            if event.pod is None or self._is_on(report.node, event.pod):
                self._send(state, event)
            state.sent[event.name] = event.count
        names = {event.name for event in fresh}
        state.sent = {name: count for name, count in state.sent.items() if name in names}

    def _is_on(self, node: str, pod: Pod) -> bool:
        """Whether Kubernetes has a pod on a node: a daemon may name any. Raises ApiFailed if it cannot be asked."""
        try:
            return self._pods.node_of(pod.namespace, pod.name) == node
        except (OSError, ValueError) as error:
            raise ApiFailed("connection", str(error)) from None

    def _send(self, state: NodeState, event: Event) -> None:
        """Add to the count of an existing event, else create it. Gives up on an event that the server always rejects."""
        if event.name not in state.sent:
            try:
                self._send_counted(
                    "event", lambda: self._server.create_event(event.namespace, to_create(event, state.uid))
                )
                return
            except ApiFailed as error:
                if error.outcome in ("gone", "invalid"):  # the pod's namespace was deleted
                    return
                if error.outcome != "exists":
                    raise
        try:
            change = to_update(event)
            self._send_counted("event", lambda: self._server.patch_event(event.namespace, event.name, change))
        except ApiFailed as error:
            if error.outcome != "gone":
                raise
            state.sent.pop(event.name, None)  # it has expired
            self._send_counted("event", lambda: self._server.create_event(event.namespace, to_create(event, state.uid)))

    def _crashed_pods(self, report: NodeReport, target: Target) -> dict[str, list[Pod]]:
        """The pods that crashed because of open faults. A daemon names them to authenticated clients only."""
        incidents = frozenset(fault.incident for fault in report.open)
        if not incidents:
            return {}
        since = min(fault.opened for fault in report.open) - 60.0
        try:
            return pods_of(self._get(target, f"/api/v1/incidents?since={since:.0f}", MAX_INCIDENT_BYTES), incidents)
        except PullFailed:
            return {}

    def _send_counted(self, request: str, send: Callable[[], T]) -> T:
        """Send a request; repeat it once after a conflict or a replaced token."""
        for is_last in (False, True):
            try:
                answer = send()
            except ApiFailed as error:
                with self._lock:
                    self._requests[request, error.outcome] += 1
                    if error.retry_after:
                        self._resting_until = max(self._resting_until, self._clock() + error.retry_after)
                if is_last or error.outcome not in ("conflict", "unauthorized"):
                    raise
            else:
                with self._lock:
                    self._requests[request, "ok"] += 1
                return answer
        raise AssertionError("unreachable")

    def _warn(self, key: str, message: str, reason: str) -> None:
        """Log a problem when it begins, not in every cycle."""
        with self._lock:
            is_new = bool(reason) and self._warned.get(key) != reason
            if reason:
                self._warned[key] = reason
            else:
                self._warned.pop(key, None)
        if is_new:
            self._log.warning(message, about=key, reason=reason)


_NEVER = NodeCondition(status="Unknown", reason="", message="")
