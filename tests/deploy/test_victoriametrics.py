"""VictoriaMetrics in place of Prometheus: it accepts each expression of the rules, and vmalert evaluates them and pages."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import eventually
from tests.support.monitoring import DEPLOY, Alertmanager, Program, fall_off_the_bus, free_port, hasty_rules, node_at
from tests.support.programs import needs

RULES = [
    (rule.get("alert", rule.get("record")), rule["expr"])
    for file in ("rules.yml", "gpu-exporters.yml")
    for group in yaml.safe_load((DEPLOY / "prometheus" / file).read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]

SHIPPED = sum(len(group["rules"]) for group in yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())["groups"])

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.deploy,
    needs("victoria-metrics", "vmalert", "prometheus-alertmanager"),
]


class Server(Program):
    """A program that serves HTTP at its own address."""

    def __init__(self, folder: Path, program: str, *flags: str) -> None:
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        super().__init__(folder / f"{program}.log", program, f"-httpListenAddr={address}", *flags)

    def ask(self, path: str, **form: str) -> Any:
        """The answer of its API; None while it does not listen. Raises AssertionError if it rejects the request."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(form)}", timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path} {form}: {error.read().decode()}") from None
        except OSError:
            return None


def victoriametrics(folder: Path, targets: list[str]) -> Server:
    """VictoriaMetrics that scrapes these targets each second, and shows samples at once."""
    job = {"job_name": "gpufault", "static_configs": [{"targets": targets, "labels": {"cluster": "e2e"}}]}
    config = folder / "scrape.yaml"
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    server = Server(
        folder, "victoria-metrics", f"-storageDataPath={folder / 'data'}", f"-promscrape.config={config}",
        "-search.latencyOffset=0s", "-search.disableCache",
    )  # fmt: skip
    eventually(lambda: server.ask("/api/v1/query", query="1"))
    return server


@pytest.fixture
def stop() -> Iterator[list[Program]]:
    """Programs that end with the test."""
    running: list[Program] = []
    yield running
    for program in reversed(running):
        program.stop()


def test_each_expression_is_accepted(tmp_path: Path, stop: list[Program]) -> None:
    server = victoriametrics(tmp_path, [])
    stop.append(server)
    for name, expression in RULES:
        assert server.ask("/api/v1/query", query=expression)["status"] == "success", name


def test_vmalert_evaluates_each_rule_and_pages(tmp_path: Path, stop: list[Program]) -> None:
    node = node_at(tmp_path / "gpu-07")
    node.start()
    try:
        database = victoriametrics(tmp_path, [node.address])
        stop.append(database)
        alertmanager = Alertmanager(tmp_path, DEPLOY / "alertmanager/alertmanager.yml")
        stop.append(alertmanager)
        vmalert = vmalert_of(tmp_path, database, alertmanager)
        stop.append(vmalert)
        eventually(lambda: recorded(database, "instance:gpufault_seen:timestamp"), seconds=120)
        fall_off_the_bus(node)
        eventually(lambda: "GpufaultFatalSignature" in firing(vmalert), seconds=300)
        eventually(lambda: "GpufaultFatalSignature" in received(alertmanager), seconds=60)
        rules = eventually(lambda: evaluated(vmalert), seconds=60)
        assert [(rule["name"], rule["lastError"]) for rule in rules if rule["lastError"]] == []
        assert len(rules) == SHIPPED
    finally:
        node.kill()


def vmalert_of(folder: Path, database: Server, alertmanager: Alertmanager) -> Server:
    """vmalert that evaluates the shipped rules each second, without what docs/alerting.md removes for 1.79."""
    rules = hasty_rules(folder)
    rules.write_text(re.sub(r"^ *keep_firing_for: .*\n", "", rules.read_text(), flags=re.MULTILINE))
    return Server(
        folder, "vmalert", f"-rule={rules}", f"-datasource.url={database.url}", f"-remoteWrite.url={database.url}",
        f"-notifier.url=http://{alertmanager.address}", "-evaluationInterval=1s", "-remoteWrite.flushInterval=100ms",
    )  # fmt: skip


def recorded(database: Server, name: str) -> list[Any]:
    result: list[Any] = database.ask("/api/v1/query", query=name)["data"]["result"]
    return result


def firing(vmalert: Server) -> set[str]:
    alerts = (vmalert.ask("/api/v1/alerts") or {"data": {"alerts": None}})["data"]["alerts"] or []
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def evaluated(vmalert: Server) -> list[dict[str, Any]]:
    """All rules, once each was evaluated."""
    rules = [rule for group in vmalert.ask("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
    return rules if all(not rule["lastEvaluation"].startswith("0001") for rule in rules) else []


def received(alertmanager: Alertmanager) -> set[str]:
    with urllib.request.urlopen(f"http://{alertmanager.address}/api/v2/alerts", timeout=20) as answer:
        return {alert["labels"]["alertname"] for alert in json.load(answer)}
