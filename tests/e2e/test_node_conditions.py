"""`gpufault node-conditions` as a process, between a real daemon and an API server: ours, and a real one where there is one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes_api import KubernetesApi
from tests.support.monitoring import node_at
from tests.support.programs import reason
from tests.support.real_kubernetes import API_SERVER, ETCD, RealKubernetes

from .conftest import Kernel, Node, eventually, gpufault

pytestmark = pytest.mark.heavy
FAULT = (
    "NVRM: Xid (PCI:0000:c1:00): 48, pid=4242, name=python3, An uncorrectable double bit error (DBE) has been detected"
)
RECOVERED = "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
RULES = [  # those of the chart; tests/deploy/test_least_privilege.py
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
]
WAIT = 90.0


class Cluster:
    """An API server with node n1, and the flags that name it."""

    def __init__(self, server: KubernetesApi | RealKubernetes, folder: Path) -> None:
        self.server = server
        token = folder / "token"
        token.write_text("first")
        self.flags = [f"--kubernetes.url={server.url}"]
        if isinstance(server, RealKubernetes):
            self.flags += [f"--kubernetes.token-file={server.token_file}", f"--kubernetes.ca-file={server.ca_file}"]
        else:
            self.flags += [f"--kubernetes.token-file={token}"]

    def status(self) -> str | None:
        condition = self.server.condition("n1")
        return condition and str(condition["status"])

    def reasons(self) -> set[str]:
        if isinstance(self.server, RealKubernetes):
            return self.server.reasons()
        return {event["reason"] for event in list(self.server.events.values())}


@pytest.fixture(params=["ours", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    server: KubernetesApi | RealKubernetes
    if request.param == "ours":
        server = KubernetesApi("n1")
    elif ETCD and API_SERVER:
        (tmp_path / "cluster").mkdir()
        server = RealKubernetes(tmp_path / "cluster", RULES, "n1")
    else:
        pytest.skip(reason(["kube-apiserver", "etcd"]))  # tests/support/real_kubernetes.py says how to build them
    yield Cluster(server, tmp_path)
    server.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = node_at(tmp_path / "n1")
    found.start()
    yield found
    found.kill()


def test_a_fault_of_a_real_daemon_is_a_condition_until_it_is_cleared(
    tmp_path: Path, cluster: Cluster, node: Node
) -> None:
    targets = tmp_path / "targets.json"
    targets.write_text(json.dumps([{"targets": [node.address], "labels": {"node": "n1"}}]))
    flags = [*cluster.flags, f"--pull.files={targets}"]
    log = tmp_path / "conditions.log"
    with log.open("wb") as file:
        reporter = subprocess.Popen(
            [gpufault(), "node-conditions", *flags, "--pull.interval=1s", "--web.listen-address=127.0.0.1:0"],
            stderr=file,
        )
    try:
        eventually(lambda: cluster.status() == "False" or None, seconds=WAIT)
        kernel = Kernel(node.folder)
        kernel.say(FAULT)
        eventually(lambda: cluster.status() == "True" or None, seconds=WAIT)
        condition = cluster.server.condition("n1")
        assert condition is not None
        assert condition["reason"] == "GpuMemoryUncorrectableEcc"
        assert condition["message"].startswith("0000:c1:00.0: ")
        eventually(lambda: cluster.reasons() == {"GpuMemoryUncorrectableEcc"} or None, seconds=WAIT)
        opened = condition["lastTransitionTime"]
        begun = time.time()
        eventually(lambda: int(time.time()) > int(begun) or None)  # times in Kubernetes have whole seconds
        kernel.say(RECOVERED)
        eventually(lambda: cluster.status() == "False" or None, seconds=WAIT)
        eventually(lambda: "GPUFaultCleared" in cluster.reasons() or None, seconds=WAIT)
        condition = cluster.server.condition("n1")
        assert condition is not None
        assert condition["lastTransitionTime"] > opened
        found = re.search(r"127\.0\.0\.1:\d+", log.read_text())
        assert found
        metrics = f"http://{found[0]}/metrics"

        def shown() -> bool:  # as of the end of a cycle
            with urllib.request.urlopen(metrics, timeout=30) as answer:
                text = answer.read().decode()
            condition_written = re.search(r'requests_total\{request="condition",result="ok"\} [3-9]', text)
            return 'gpufault_node_conditions_nodes{state="no_fault"} 1.0' in text and condition_written is not None

        eventually(lambda: shown() or None, seconds=WAIT)
    finally:
        reporter.send_signal(signal.SIGTERM)
        assert reporter.wait(timeout=30) == 0, log.read_text()
    done = subprocess.run(
        [gpufault(), "node-conditions", *flags, "--once"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "no fault: 1\n"), done.stderr
