"""The reporter of node conditions against a server that answers as the API server does, and daemons that answer as ours."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog

from exporter.config.pull import PullConfig
from exporter.core.diagnosis.node_faults import Fault, fault_json
from exporter.core.diagnosis.recoveries import Recovery
from exporter.core.model import Moment
from exporter.fleet.pull.pods import Pods
from exporter.kubernetes.api_client import ApiServer
from exporter.kubernetes.reporter import UNREACHABLE_SECONDS, Reporter
from tests.support.kubernetes_api import ENOUGH, KubernetesApi, Refused

NOW = 1_795_590_000.0  # 2026-11-25T07:00:00Z
FAULT = Fault(
    time=NOW - 60, last_time=NOW - 30, count=2, signature="nv_xid_48_double_bit_ecc", root_cause="gpu_memory_uncorrectable_ecc",
    title="GPU memory has an uncorrectable error", gpu="0000:c1:00.0", job=None, remediation="Reset the GPU.",
    incident="i1", action="reset_gpu", vendor="nvidia", card="1650", openings=(NOW - 60,),
)  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Daemons:
    """Answers of node daemons on loopback: a port each."""

    def __init__(self) -> None:
        self.faults: dict[str, list[Fault]] = {}
        self.blind: dict[str, list[str]] = {}
        self.incidents: list[dict[str, Any]] = []
        self.raw: dict[str, bytes] = {}
        self._servers: dict[str, ThreadingHTTPServer] = {}

    def start(self, node: str, *faults: Fault, host: str = "127.0.0.1") -> str:
        """The address of a new daemon of a node, or of one that says so."""
        self.faults[node] = list(faults)
        daemons = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/api/v1/incidents"):
                    answer: dict[str, Any] = {"incidents": daemons.incidents}
                else:
                    told = [
                        fault_json(each, Moment(time=NOW, boot="b", boot_seconds=1e6)) for each in daemons.faults[node]
                    ]
                    answer = {"node": node, "blind": daemons.blind.get(node, []), "faults": told}
                text = daemons.raw.get(node, json.dumps(answer).encode())
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer((host, 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"{host}:{server.server_port}"
        self._servers[address] = server
        return address

    def stop(self, address: str) -> None:
        server = self._servers.pop(address)
        server.shutdown()
        server.server_close()

    def close(self) -> None:
        for address in list(self._servers):
            self.stop(address)


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    found = Daemons()
    yield found
    found.close()


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    server = KubernetesApi("n1", "n2")
    server.pods["team-a", "train-0"] = server.pod("team-a", "train-0", "n1")
    server.pods["team-a", "on-n2"] = server.pod("team-a", "on-n2", "n2")
    yield server
    server.close()


class Rig:
    """A reporter with its clock, its target file and its token."""

    def __init__(self, folder: Path, api: KubernetesApi, **targets: str) -> None:
        self.clock = Clock()
        self.token = folder / "token"
        self.token.write_text("first\n")
        self.targets = folder / "targets.json"
        self.name(**targets)
        self._api = api
        self.reporter = self.restarted()

    def name(self, **targets: str) -> None:
        groups = [{"targets": [address], "labels": {"node": node}} for node, address in targets.items()]
        self.targets.write_text(json.dumps(groups))

    def restarted(self, **sources: Any) -> Reporter:
        (self.targets.parent / "password").write_text("secret")
        config = PullConfig.model_validate(
            {
                **(sources or {"files": [str(self.targets)]}),
                "timeout": "5s",
                "user": "u",
                "password_file": self.targets.parent / "password",
            }
        )
        server = ApiServer.at(self._api.url, self.token, None)
        log = structlog.wrap_logger(structlog.PrintLogger())
        pods = Pods.at(self._api.url, self.token, None, "gpu")
        self.reporter = Reporter(config, server, pods, log, heartbeat=300.0, clock=self.clock)
        return self.reporter

    def cycle(self, after: float = 0.0) -> dict[str, int]:
        self.clock.now += after
        return dict(self.reporter.cycle().nodes)


def test_a_fault_sets_the_condition_and_its_end_unsets_it(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1"), n2=daemons.start("n2"))
    assert rig.cycle() == {"no_fault": 2}
    assert api.condition("n1") == {
        "type": "GPUFaultDetected", "status": "False", "reason": "NoGPUFault", "message": "no open GPU fault",
        "lastHeartbeatTime": "2026-11-25T07:00:00Z", "lastTransitionTime": "2026-11-25T07:00:00Z",
    }  # fmt: skip
    daemons.faults["n1"] = [FAULT]
    assert rig.cycle(after=30) == {"fault": 1, "no_fault": 1}
    assert api.condition("n1") == {
        "type": "GPUFaultDetected", "status": "True", "reason": "GpuMemoryUncorrectableEcc",
        "message": "0000:c1:00.0: GPU memory has an uncorrectable error; action reset_gpu. Reset the GPU.",
        "lastHeartbeatTime": "2026-11-25T07:00:30Z", "lastTransitionTime": "2026-11-25T07:00:30Z",
    }  # fmt: skip
    daemons.faults["n1"] = [replace(FAULT, cleared=Recovery(kind="gpu_reset", time=NOW + 40, gpu=FAULT.gpu))]
    assert rig.cycle(after=30) == {"no_fault": 2}
    condition = api.condition("n1")
    assert condition is not None
    assert (condition["status"], condition["lastTransitionTime"]) == ("False", "2026-11-25T07:01:00Z")
    assert [each["type"] for each in api.nodes["n1"]["status"]["conditions"]] == ["Ready", "GPUFaultDetected"]
    assert {event["reason"]: event["type"] for event in api.events.values()} == {
        "GpuMemoryUncorrectableEcc": "Warning", "GPUFaultCleared": "Normal",
    }  # fmt: skip


def test_an_unchanged_condition_is_written_once_a_heartbeat_and_keeps_its_transition(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons
) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    rig.cycle()
    written = api.requests["patch", "nodes/status"]
    for _ in range(5):
        rig.cycle(after=30)
    assert api.requests["patch", "nodes/status"] == written
    rig.cycle(after=200)
    assert api.requests["patch", "nodes/status"] == written + 1
    condition = api.condition("n1")
    assert condition is not None
    assert condition["lastTransitionTime"] == "2026-11-25T07:00:00Z"
    assert condition["lastHeartbeatTime"] == "2026-11-25T07:05:50Z"


def test_a_restarted_reporter_repeats_neither_the_transition_nor_an_event(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons
) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    rig.cycle()
    rig.restarted()
    daemons.faults["n1"] = [replace(FAULT, count=3, last_time=NOW + 50)]
    rig.cycle(after=60)
    condition = api.condition("n1")
    assert condition is not None
    assert condition["lastTransitionTime"] == "2026-11-25T07:00:00Z"
    [event] = api.events.values()
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": api.nodes["n1"]["metadata"]["uid"],
    }  # fmt: skip
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        3, "2026-11-25T06:59:00Z", "2026-11-25T07:00:50Z",
    )  # fmt: skip


def test_an_event_that_has_expired_is_written_again_when_its_fault_is_seen_again(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons
) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    rig.cycle()
    api.events.clear()
    rig.cycle(after=3000)
    assert not api.events  # nothing new has happened
    daemons.faults["n1"] = [replace(FAULT, count=3, last_time=NOW + 3000)]
    rig.cycle(after=30)
    [event] = api.events.values()
    assert event["count"] == 3


def test_a_fault_that_comes_back_is_a_new_event(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    rig.cycle()
    again = replace(FAULT, count=3, last_time=NOW + 100, openings=(NOW - 60, NOW + 100), times=2)
    daemons.faults["n1"] = [again]
    rig.cycle(after=120)
    assert len(api.events) == 2
    condition = api.condition("n1")
    assert condition is not None
    assert "(2 times in 14 days)" in condition["message"]


def test_pods_that_the_fault_has_crashed_get_the_event_too(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons
) -> None:
    daemons.incidents = [
        {"caused_by": "i1", "job": {"id": "team-a/train-0", "kind": "kubernetes"}},
        {"caused_by": "i1", "job": {"id": "team-a/train-0", "kind": "kubernetes"}},
        {"caused_by": "other", "job": {"id": "team-a/eval-0", "kind": "kubernetes"}},
        {"caused_by": "i1", "job": {"id": "../nodes", "kind": "kubernetes"}},
        {"caused_by": "i1", "job": {"id": "team-a/on-n2", "kind": "kubernetes"}},
        {"caused_by": "i1", "job": {"id": "team-a/gone", "kind": "kubernetes"}},
        {"caused_by": "i1", "job": None},
    ]
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    rig.cycle()
    assert sorted(namespace for namespace, _ in api.events) == ["default", "team-a"]
    [event] = [event for (namespace, _), event in api.events.items() if namespace == "team-a"]
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "namespace": "team-a"}
    assert event["message"].startswith("on node n1, 0000:c1:00.0: GPU memory")


def test_a_daemon_that_cannot_see_all_faults_is_unknown(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    daemons.blind["n1"] = ["kmsg: /dev/kmsg: permission denied"]
    rig = Rig(tmp_path, api, n1=daemons.start("n1"))
    assert rig.cycle() == {"blind": 1}
    condition = api.condition("n1")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("Unknown", "GPUFaultSourceUnreadable")
    daemons.faults["n1"] = [FAULT]
    assert rig.cycle(after=30) == {"fault": 1}


def test_a_daemon_that_is_gone_is_unknown_after_a_while_unless_a_fault_was_open(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons
) -> None:
    first, second = daemons.start("n1", FAULT), daemons.start("n2")
    rig = Rig(tmp_path, api, n1=first, n2=second)
    rig.cycle()
    daemons.stop(first)
    daemons.stop(second)
    before = api.condition("n1"), api.condition("n2")
    assert rig.cycle(after=60) == {"unreachable": 2}
    assert (api.condition("n1"), api.condition("n2")) == before
    rig.name()  # nor does it matter whether the targets are still listed
    rig.cycle(after=UNREACHABLE_SECONDS)
    assert api.condition("n1") == before[0]
    condition = api.condition("n2")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("Unknown", "GPUFaultDaemonUnreachable")


@pytest.mark.parametrize(
    "refused",
    [
        Refused(500, "InternalError"),
        Refused(409, "Conflict"),
        Refused(503, "ServiceUnavailable"),
        Refused(504, "Timeout"),
    ],
    ids=lambda refused: str(refused.code),
)
def test_what_the_server_refuses_for_now_is_written_by_a_later_cycle(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons, refused: Refused
) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT), n2=daemons.start("n2"))
    refusals = []

    def refuse(verb: str, path: str) -> None:
        if "n1" in path and len(refusals) < 4:
            refusals.append(path)
            raise refused

    api.before = refuse
    cycles = [rig.cycle(after=30) for _ in range(5)]
    assert cycles[0] == {"failed": 1, "no_fault": 1}
    assert cycles[-1] == {"fault": 1, "no_fault": 1}
    assert len(api.events) == 1


def test_a_server_that_asks_for_a_pause_gets_it(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    busy = True

    def refuse(verb: str, path: str) -> None:
        if busy:
            raise Refused(429, "TooManyRequests", Retry_After="45")

    api.before = refuse
    assert rig.cycle() == {"failed": 1}
    busy = False
    assert rig.cycle(after=30) == {"waiting": 1}
    assert api.requests.total() == 1
    assert rig.cycle(after=30) == {"fault": 1}


def test_a_replaced_token_is_read_without_a_restart(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1"))
    rig.cycle()
    api.token = "second"
    daemons.faults["n1"] = [FAULT]
    assert rig.cycle(after=30) == {"failed": 1}
    rig.token.write_text("second")
    assert rig.cycle(after=30) == {"fault": 1}


def test_without_the_right_to_write_events_the_condition_is_set(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons
) -> None:
    api.rights = frozenset({("patch", "nodes/status")})
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    assert rig.cycle() == {"failed": 1}
    condition = api.condition("n1")
    assert condition is not None
    assert condition["status"] == "True"
    assert rig.reporter.status.requests["event", "forbidden"] == 1


def test_it_asks_for_no_other_right(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    rig.cycle()
    daemons.faults["n1"] = [replace(FAULT, count=5, last_time=NOW)]
    daemons.incidents = [{"caused_by": "i1", "job": {"id": "team-a/train-0", "kind": "kubernetes"}}]
    rig.restarted()
    rig.cycle(after=30)
    rig.restarted(dns=["localhost:9"])
    rig.cycle(after=30)
    assert set(api.requests) == ENOUGH


def test_a_node_that_kubernetes_does_not_have_harms_no_other(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons
) -> None:
    rig = Rig(tmp_path, api, strange=daemons.start("strange", FAULT), n1=daemons.start("n1", FAULT))
    assert rig.cycle() == {"no_such_node": 1, "fault": 1}


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b"nonsense", b'{"node": "n1", "faults": [{}]}', b'{"node": "n1", "faults": 5}', b"[" * 100_000,
     b'{"node": "n1", "faults": [], "blind": 3}'],
)  # fmt: skip
def test_an_answer_that_is_not_a_list_of_faults_changes_nothing(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons, answer: bytes
) -> None:
    rig = Rig(tmp_path, api, n1=daemons.start("n1", FAULT))
    rig.cycle()
    before = api.condition("n1")
    daemons.raw["n1"] = answer
    assert rig.cycle(after=30) == {"unreachable": 1}
    assert api.condition("n1") == before
    assert rig.reporter.status.daemon_failures == {"answer": 1}


def test_a_daemon_reports_no_fault_of_another_node(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    liar = daemons.start("n2", FAULT)
    rig = Rig(tmp_path, api, n1=liar)
    assert rig.cycle() == {"unreachable": 1}
    assert api.condition("n2") is None
    assert not api.events


@pytest.mark.parametrize("claimed", ["n2", "n3"], ids=["of another daemon", "without a daemon"])
def test_a_daemon_that_dns_lists_reports_for_the_node_of_its_pod_only(
    tmp_path: Path, api: KubernetesApi, daemons: Daemons, monkeypatch: pytest.MonkeyPatch, claimed: str
) -> None:
    """Whatever it calls itself: the API server says which node an address is on."""
    hosts = {"one.svc": "127.0.0.11", "two.svc": "127.0.0.12"}
    liar = daemons.start(claimed, FAULT, host=hosts["one.svc"])
    ports = {"one.svc": liar, "two.svc": daemons.start("n2", host=hosts["two.svc"])}
    ports = {name: address.rpartition(":")[2] for name, address in ports.items()}
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo",
        lambda host, port, *more, **options: [(2, 1, 6, "", (hosts[host], port))] if host in hosts
        else real(host, port, *more, **options),
    )  # fmt: skip
    api.nodes["n3"] = KubernetesApi.node("n3")
    for node, host in (("n1", "127.0.0.11"), ("n2", "127.0.0.12")):
        api.pods["gpu", f"gpufault-{node}"] = api.pod("gpu", f"gpufault-{node}", node, host)
    rig = Rig(tmp_path, api)
    rig.restarted(dns=[f"{name}:{port}" for name, port in ports.items()])
    assert rig.cycle() == {"unreachable": 1, "no_fault": 1}
    assert rig.reporter.status.daemon_failures == {"other_node": 1}
    assert [node for node in api.nodes if api.condition(node)] == ["n2"]
    assert api.condition("n2")["status"] == "False"  # type: ignore[index]
    assert not api.events
    api.rights -= {("list", "pods")}
    rig.restarted(dns=[f"{name}:{port}" for name, port in ports.items()])
    assert rig.cycle(after=400) == {}  # what cannot be proven is not reported
    assert "403" in rig.reporter.status.problem


def test_the_pod_of_a_fault_is_on_the_node_of_the_fault(tmp_path: Path, api: KubernetesApi, daemons: Daemons) -> None:
    faults = [replace(FAULT, job=f"team-a/{name}", incident=name) for name in ("train-0", "on-n2", "gone")]
    rig = Rig(tmp_path, api, n1=daemons.start("n1", *faults))
    rig.cycle()
    assert {event["involvedObject"]["name"] for event in api.events.values()} == {"n1", "train-0"}
