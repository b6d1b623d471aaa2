"""Helm's own part in a cluster's life: installation, an upgrade that its hook stops, an upgrade, a rollback, the end."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.net.tokens import public_keys
from tests.deploy.api_server import ApiServer, serving
from tests.deploy.kubernetes import CHART, HELM, Object, needs_helm, run
from tests.deploy.workload import Workload

pytestmark = [pytest.mark.deploy, pytest.mark.nightly, needs_helm]

BROKEN = {"packs": {"site.yaml": "pack: site\nsignatures:\n  - id: site_broken\n    patterns: ['(']\n"}}


class Helm:
    """Helm at work on one release. A Job's containers run for real, with the ConfigMaps that are there then."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._numbers = count()
        self.said: list[str] = []

    def __call__(self, *command: str, **values: Any) -> int:
        assert HELM
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump({"kubePrometheusStack": {"enabled": True}, **values}))
        options = ["--namespace", "gpu", "--kube-apiserver", self._server.url, "--timeout", "300s"]
        if command[0] in ("install", "upgrade"):
            options += [str(CHART), "--values", str(file), "--disable-openapi-validation"]
        if command[0] in ("upgrade", "rollback"):
            options += ["--force"]  # replaces objects, where it would else patch them
        code, said, error = run(HELM, *command, *options)
        self.said.append(said + error)
        return code

    def run_job(self, job: Object) -> bool:
        text = yaml.safe_dump_all(copy.deepcopy([*self._server.objects.values()]))
        succeeded = True
        for container in job["spec"]["template"]["spec"]["containers"]:
            root = self._folder / f"job-{next(self._numbers)}"
            root.mkdir()
            code, said = Workload(text, "Job", root, container["name"], {}).run()
            self.said.append(said)
            succeeded &= code == 0
        return succeeded


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving() as running:
        yield running


def spec(server: ApiServer) -> Object:
    found: Object = copy.deepcopy(server.one("DaemonSet", "gpu-gpufault")["spec"])
    return found


def test_a_broken_upgrade_stops_at_its_hook_and_an_uninstallation_leaves_nothing(
    server: ApiServer, tmp_path: Path
) -> None:
    helm = Helm(server, tmp_path)
    server.run_job = helm.run_job
    assert helm("install", "gpu") == 0, helm.said
    installed, first = server.names(), spec(server)
    assert {"DaemonSet/gpu-gpufault", "Deployment/gpu-gpufault-fleet", "PodMonitor/gpu-gpufault"} <= installed
    assert "Job/gpu-gpufault-check" not in installed
    secrets = [server.one("Secret", f"gpu-gpufault-{name}")["data"] for name in ("access", "keys")]

    assert helm("upgrade", "gpu", signatures=BROKEN) != 0
    assert "pre-upgrade hooks failed" in helm.said[-1]
    assert "site.yaml" in "".join(helm.said)
    assert spec(server) == first
    assert server.names() - installed == {"Job/gpu-gpufault-check"}  # its log says what is wrong

    assert helm("upgrade", "gpu", log={"level": "debug"}) == 0, helm.said
    second = spec(server)
    assert "--log.level=debug" in second["template"]["spec"]["containers"][0]["args"]
    assert "Job/gpu-gpufault-check" not in server.names()
    assert [server.one("Secret", f"gpu-gpufault-{name}")["data"] for name in ("access", "keys")] == secrets
    assert helm("upgrade", "gpu", access={"keyGeneration": 2}) == 0, helm.said
    old, new = secrets[1], server.one("Secret", "gpu-gpufault-keys")["data"]
    assert old["private-key.pem"] != new["private-key.pem"]
    newest, before = public_keys(base64.b64decode(new["public-keys.pem"]).decode())
    assert [before] == public_keys(base64.b64decode(old["public-keys.pem"]).decode())
    assert newest != before

    assert helm("rollback", "gpu", "1") == 0, helm.said
    assert spec(server) == first
    assert helm("uninstall", "gpu") == 0, helm.said
    assert server.names() == set()


def test_the_volume_of_the_fleet_service_is_all_that_an_uninstallation_leaves(
    server: ApiServer, tmp_path: Path
) -> None:
    helm = Helm(server, tmp_path)
    assert helm("install", "gpu", fleet={"persistence": {"enabled": True}}) == 0, helm.said
    assert helm("uninstall", "gpu") == 0, helm.said
    assert server.names() == {"PersistentVolumeClaim/gpu-gpufault-fleet"}
