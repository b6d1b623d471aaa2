"""A cluster's life with what the chart renders: one value for a working view, pods that come and go, an upgrade, a rollback,
the end. Daemon and fleet service are processes here; Prometheus is real. Helm's own part is in test_helm_life.py.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.kubernetes import ROOT, needs_helm, objects, only, template
from tests.deploy.workload import Workload, kept, web_access
from tests.e2e.conftest import eventually
from tests.support.monitoring import Prometheus, free_port
from tests.support.programs import needs

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.nightly,
    needs_helm,
    needs("prometheus"),
]

NODE = "gpu-07"
CRASH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
)
SIGNATURE = "torch_oom"
LINES = f'gpufault_lines_matched_total{{signature="{SIGNATURE}",source="job"}}'
ONE_VALUE = {"kubePrometheusStack": {"enabled": True}}


class Cluster:
    """One node with its daemon, and the fleet service. `release` is what Helm rendered last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.node = folder / "node"
        self.node.mkdir()
        (self.node / "host").symlink_to(ROOT / "tests/fixtures/roots/amd")
        (self.node / "kmsg").touch()
        self._changes = {
            "--web.listen-address=:9873": f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.listen-address=:9874": "--web.listen-address=127.0.0.1:0",
            "gpu-gpufault.gpu.svc:9873": f"127.0.0.1:{self.port}",
            "dns_names: kubernetes": "dns_names: daemon\n  interval: 1s",  # no API server here; hasty: the default is 30 s
            "- kind: kmsg": f"- kind: kmsg\n  path: {self.node}/kmsg",
            "state_dir:": "incidents: {settle: 300ms, window: 2s}\nstate_dir:",
        }
        self.release = ""
        self.daemon: Workload | None = None
        self.fleet: Workload | None = None
        self._secrets: dict[str, Any] = {}

    def render(self, **values: Any) -> str:
        """What Helm renders. As its lookup would, it keeps the Secrets of the release that is installed."""
        (self.folder / "values.yaml").write_text(yaml.safe_dump(values))
        code, text, error = template("--values", self.folder / "values.yaml")
        assert code == 0, error
        documents = objects(text)
        for item in documents:
            if item["kind"] == "Secret":
                item["data"] = self._secrets.setdefault(item["metadata"]["name"], item["data"])
        return yaml.safe_dump_all(documents)

    def install(self, text: str, *, fleet: bool = True) -> None:
        """Replace what runs by what was rendered, as an upgrade does. Without `fleet`, its pod is not up yet."""
        self.stop()
        self.release = text
        self.daemon = Workload(text, "DaemonSet", self.node, "gpufault", self._changes, NODE_NAME=NODE)
        (self.folder / "fleet").mkdir(exist_ok=True)
        self.fleet = Workload(text, "Deployment", self.folder / "fleet", "fleet", self._changes)
        if not fleet:
            self.fleet = None
        if self.fleet:
            self.fleet.headers = web_access(text)
        for workload in filter(None, (self.daemon, self.fleet)):
            workload.start()

    def stop(self) -> None:
        for workload in (self.fleet, self.daemon):
            if workload is not None:
                workload.stop()
        self.fleet = self.daemon = None

    def log(self, pod: str) -> Path:
        """The log of a pod's container, as the kubelet names it."""
        folder = self.node / f"var/log/pods/team-a_{pod}_8d5e7c7a-0000-4000-8000-000000000000/trainer"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "0.log"

    def crash(self, pod: str) -> None:
        """A container's crash, as the container runtime writes it."""
        with self.log(pod).open("a") as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')}.000000000+00:00 stderr F {CRASH}\n")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with ExitStack() as on_exit:
        on_exit.callback(made.stop)
        yield made


def crashes(cluster: Cluster) -> set[str]:
    """The pods whose crashes the fleet service knows."""
    assert cluster.fleet is not None
    found = cluster.fleet.json("/api/v1/incidents?limit=100")["incidents"]
    return {incident["job"] for incident in found if incident["cause"] == SIGNATURE}


def test_one_value_gives_a_working_view_of_a_pods_crash(cluster: Cluster, tmp_path: Path) -> None:
    cluster.install(cluster.render(**ONE_VALUE))
    assert cluster.daemon
    assert cluster.fleet
    rules = only(cluster.release, "PrometheusRule")["spec"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    (endpoint,) = only(cluster.release, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert "basicAuth" not in endpoint  # what every daemon sees would open all of them, and the fleet's pages
    (names,) = [one["basicAuth"] for one in only(cluster.release, "ServiceMonitor")["spec"]["endpoints"]]
    secret = only(cluster.release, "Secret", names["password"]["name"])["data"]
    login = {key: base64.b64decode(secret[names[key]["key"]]).decode() for key in ("username", "password")}
    settings = {"metrics_path": endpoint["path"], "basic_auth": login}
    targets = {
        "gpufault": {cluster.daemon.address: {"instance": NODE}},
        "gpu-gpufault-fleet": {cluster.fleet.address: {}},
    }
    prometheus = Prometheus(tmp_path, targets, rules=tmp_path / "rules.yml", settings=settings)
    try:
        cluster.crash("train-0")
        eventually(lambda: prometheus.query('sum(up{job=~".*gpufault.*"})') == [2.0] or None, seconds=60)
        crashed = f'gpufault_job_incidents{{namespace="team-a",pod="train-0",signature="{SIGNATURE}"}}'
        eventually(lambda: prometheus.query(crashed) == [1.0] or None, seconds=60)
        loaded = {group["name"]: group["rules"] for group in prometheus.ask("rules")["data"]["groups"]}
        assert {name: len(found) for name, found in loaded.items()} == {
            group["name"]: len(group["rules"]) for group in rules["groups"]
        }
    finally:
        prometheus.stop()
    boards = [i for i in objects(cluster.release) if "grafana_dashboard" in i["metadata"]["labels"]]
    assert len({json.loads(text)["uid"] for board in boards for text in board["data"].values()}) == 4

    eventually(lambda: len(crashes(cluster)) == 1 or None, seconds=60)
    assert crashes(cluster) == {"team-a/train-0"}
    status, page = cluster.fleet.ask("/incidents")
    assert status == 200
    assert "team-a/train-0" in page
    assert CRASH.split(". ")[0] in page  # who has the password may read lines
    cluster.fleet.headers = {}
    assert cluster.fleet.ask("/incidents")[0] == 401
    assert cluster.daemon.ask("/api/v1/journal")[0] == 403
    cluster.daemon.headers = web_access(cluster.release)  # one secret opens one door
    assert cluster.daemon.ask("/api/v1/journal")[0] == 403


def test_an_upgrade_and_a_rollback_lose_nothing(cluster: Cluster) -> None:
    first = cluster.render(**ONE_VALUE)
    cluster.install(first, fleet=False)
    assert cluster.daemon
    pods = [f"train-{number}" for number in range(8)]
    for pod in pods[:3]:
        cluster.crash(pod)
    eventually(lambda: cluster.daemon.value(LINES) == 3 or None, seconds=60)
    shutil.rmtree(cluster.log(pods[0]).parent.parent)  # a pod is deleted
    cluster.log(pods[1]).rename(cluster.log(pods[1]).with_name("0.log.20260301-120000"))  # a log is rotated
    cluster.crash(pods[1])

    second = cluster.render(**ONE_VALUE, config={"facts": {"extra": {"rack": "r12"}}}, log={"level": "debug"})
    cluster.stop()
    for pod in pods[3:6]:  # while no daemon runs
        cluster.crash(pod)
    cluster.install(second, fleet=False)
    eventually(lambda: cluster.daemon.value(LINES) == 7 or None, seconds=60)
    cluster.install(first)  # a rollback
    for pod in pods[6:]:
        cluster.crash(pod)
    eventually(lambda: cluster.daemon.value(LINES) == 9 or None, seconds=60)
    eventually(lambda: crashes(cluster) == {f"team-a/{pod}" for pod in pods} or None, seconds=60)
    assert cluster.daemon.value('gpufault_source_lines_dropped_total{source="pods"}') in (None, 0)

    cluster.stop()
    assert kept(first) == []  # nothing in the cluster
    left = {path.name for path in (cluster.node / "var/lib").iterdir()}
    assert left == {"gpufault"}
    assert {path.name for path in (cluster.node / "var/lib/gpufault").iterdir()} >= {"state.sqlite", "journal"}
