"""The compose file: mounts exist, and each program accepts its configuration. Needs no container engine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.tools import tool
from tests.support.programs import needs

FOLDER = Path(__file__).parents[2] / "deploy/compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
MOUNTS = [(name, *mount.split(":")[:2]) for name, service in SERVICES.items() for mount in service["volumes"]]
COMPOSE_SPEC = tool("compose-spec")

pytestmark = pytest.mark.deploy


def mounted(service: str, path: str) -> Path:
    """The file here that a container sees at a path."""
    (here,) = (source for name, source, target in MOUNTS if (name, target) == (service, path))
    return (FOLDER / here).resolve()


def run(*command: str | Path) -> tuple[int, str]:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


@needs(absent=[] if COMPOSE_SPEC else ["compose-spec"])
def test_the_compose_file_is_valid() -> None:
    assert COMPOSE_SPEC
    code, said = run(COMPOSE_SPEC, FOLDER / "compose.yaml")
    assert code == 0, said
    assert yaml.safe_load(said)["services"].keys() == SERVICES.keys()


def test_compose_ports_are_bound_to_loopback() -> None:
    assert SERVICES.keys() == {"gpufault", "prometheus", "alertmanager", "grafana"}
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)] == []
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    assert [image for image in images if not re.fullmatch(r"\w+/\w+:v?\d+\.\d+\.\d+", image)] == []


def test_every_mount_exists_in_the_checkout_or_is_a_volume() -> None:
    volumes = {source for _, source, _ in MOUNTS if not source.startswith(".")}
    assert volumes == COMPOSE["volumes"].keys()
    assert [source for _, source, _ in MOUNTS if source.startswith(".") and not (FOLDER / source).exists()] == []
    assert (FOLDER / SERVICES["gpufault"]["build"] / "Dockerfile").is_file()


def test_the_daemon_accepts_its_configuration_and_writes_to_a_volume(tmp_path: Path) -> None:
    config = mounted("gpufault", "/etc/gpufault/config.yaml")
    code, said = run(Path(sys.executable).with_name("gpufault"), "run", "--config.check", f"--config.file={config}")
    assert code == 0, said
    read = yaml.safe_load(config.read_text(encoding="utf-8"))
    targets = {target for name, _, target in MOUNTS if name == "gpufault"}
    assert {read["state_dir"], str(Path(read["sources"][0]["paths"][0]).parent)} <= targets
    assert SERVICES["gpufault"]["read_only"] is True


@needs("promtool")
def test_prometheus_accepts_its_configuration_and_scrapes_the_daemon(tmp_path: Path) -> None:
    rules = mounted("prometheus", "/etc/prometheus/rules.yml")
    text = mounted("prometheus", "/etc/prometheus/prometheus.yml").read_text(encoding="utf-8")
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/rules.yml", str(rules)))
    code, said = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert code == 0, said
    assert "rules found" in said
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["gpufault:9873"]
    assert yaml.safe_load(text)["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["alertmanager:9093"]


@needs("amtool")
def test_alertmanager_accepts_its_configuration() -> None:
    code, said = run("amtool", "check-config", mounted("alertmanager", "/etc/alertmanager/alertmanager.yml"))
    assert code == 0, said


def test_grafana_gets_the_datasource_and_the_dashboards() -> None:
    given = yaml.safe_load(mounted("grafana", "/etc/grafana/provisioning/datasources/gpufault.yaml").read_text())
    (datasource,) = given["datasources"]
    assert (datasource["type"], datasource["url"], datasource["isDefault"]) == (
        "prometheus",
        "http://prometheus:9090",
        True,
    )
    given = yaml.safe_load(mounted("grafana", "/etc/grafana/provisioning/dashboards/gpufault.yaml").read_text())
    folder = mounted("grafana", given["providers"][0]["options"]["path"])
    assert {path.name for path in folder.glob("*.json")} == {
        "fleet.json",
        "node.json",
        "root-cause.json",
        "agents.json",
    }
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (folder / home.name).is_file()
