"""Each query of each dashboard, asked of a real Prometheus that has scraped real daemons and a real correlator: none
fails, and none shows an empty panel.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import eventually, gpufault
from tests.support.monitoring import (
    DEPLOY,
    Program,
    Prometheus,
    fall_off_the_bus,
    free_port,
    hasty_rules,
    node_at,
    quiet_days,
    write_history,
)
from tests.support.programs import needs

ROOT = DEPLOY.parent
CAUSE = "onednn_pvc_scoreboard_hazard"
CRASH = (ROOT / "exporter/demo/logs/slurm-48230.out").read_text(encoding="utf-8")
DASHBOARDS = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in sorted((DEPLOY / "grafana").glob("*.json"))}
CARD = json.loads((ROOT / "tests/fixtures/roots/amd/expected.json").read_text(encoding="utf-8"))["gpus"][0]
# What dcgm-exporter and AMD's exporter would tell of that card, as if both knew it.
TELEMETRY = f"""DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{UUID="{CARD["unique_id"]}"}} 2
gpu_ecc_uncorrect_total{{serial_number="{CARD["serial"]}"}} 1
gpu_junction_temperature{{serial_number="{CARD["serial"]}"}} 61
pcie_replay_count{{serial_number="{CARD["serial"]}"}} 4
gpu_xgmi_link_rx{{serial_number="{CARD["serial"]}",link_index="0"}} 900
"""
INTERVALS = {"$__rate_interval": "1m", "$__range": "1h"}

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.deploy,
    needs("prometheus"),
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    pytest.importorskip("scipy", reason="needs gpufault[fleet]")
    folder = tmp_path_factory.mktemp("fleet")
    amd = {"facts": {"rootfs": str(ROOT / "tests/fixtures/roots/amd")}}
    nodes = [node_at(folder / "n0", **amd), node_at(folder / "n1"), node_at(folder / "n2")]
    running: list[Program] = []
    pages: list[ThreadingHTTPServer] = []
    try:
        for node in nodes:
            node.start()
        # A fleet with a cause and some lemons in it.
        planted = ("--nodes=1000", "--window=28d", "--rate=10", "--causes=1", "--rate-ratio=20", "--lemon=60")
        subprocess.run([gpufault(), "simulate", *planted, str(folder / "journals")], check=True, capture_output=True)
        correlator = f"127.0.0.1:{free_port()}"
        serve = ("--journal", str(folder / "journals"), "--window=28d", f"--web.listen-address={correlator}")
        running.append(Program(folder / "fleet.log", gpufault(), "fleet", *serve))
        write_history(folder, quiet_days([node.folder.name for node in nodes], now=time.time()))
        telemetry = running_page(TELEMETRY)
        pages.append(telemetry)
        targets = {
            "gpu-exporters": {f"127.0.0.1:{telemetry.server_port}": {"cluster": "e2e"}},
            "gpufault": {node.address: {"cluster": "e2e", "instance": node.folder.name} for node in nodes},
            "gpufault-fleet": {correlator: {"cluster": "e2e"}},
        }
        server = Prometheus(folder, targets, rules=all_rules(folder))
        running.append(server)
        scraped = "count(gpufault_build_info) + count(gpufault_fleet_build_info)"  # of `up` there is a history
        eventually(lambda: server.query(scraped) == [4.0], seconds=120)
        for node in nodes:
            (node.logs / "slurm-7.log").write_text(CRASH.replace("48230", node.folder.name[1:]))
        (nodes[0].logs / "core.log").write_bytes(b"\x7fELF" + bytes(100))
        fall_off_the_bus(nodes[0])
        yield server
    finally:
        for program in reversed(running):
            program.stop()
        for page in pages:
            page.shutdown()
            page.server_close()
        for node in nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()


def running_page(text: str) -> ThreadingHTTPServer:
    """A server that answers everything with a text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def all_rules(folder: Path) -> Path:
    """The shipped rules, and those that join with the exporters of GPU vendors."""
    path = hasty_rules(folder)
    more = yaml.safe_load((DEPLOY / "prometheus/gpu-exporters.yml").read_text(encoding="utf-8"))["groups"]
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    path.write_text(yaml.safe_dump({"groups": [*groups, *({**group, "interval": "1s"} for group in more)]}))
    return path


def queries() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            yield from ((name, panel["title"], target) for target in panel.get("targets", ()))


def filled(expression: str, dashboard: dict[str, Any]) -> str:
    """As Grafana would ask with All chosen for every variable, and a page that looks back an hour."""
    for variable, value in INTERVALS.items():
        expression = expression.replace(variable, value)
    for variable in dashboard["templating"]["list"]:
        expression = re.sub(rf"\${variable['name']}\b", variable.get("allValue", ""), expression)
    assert "$" not in expression
    return expression


def answer(server: Prometheus, expression: str, instant: bool) -> list[Any]:
    now = time.time()
    form = {"start": f"{now - 600:.0f}", "end": f"{now:.0f}", "step": "5"}
    asked = server.ask("query", query=expression) if instant else server.ask("query_range", query=expression, **form)
    found: list[Any] = asked.get("data", {}).get("result", [])
    return found


def test_every_dashboard_query_returns_data(prometheus: Prometheus) -> None:
    waiting = list(queries())
    assert len(waiting) > 50

    def shown() -> bool:
        for query in list(waiting):
            name, _, target = query
            if answer(prometheus, filled(target["expr"], DASHBOARDS[name]), target.get("instant", False)):
                waiting.remove(query)
        return not waiting

    try:
        eventually(shown, seconds=180)
    except AssertionError:
        empty = [(name, title, target["expr"]) for name, title, target in waiting]
        raise AssertionError(empty) from None


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_dashboard_variable_has_values(prometheus: Prometheus, name: str) -> None:
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", filled(variable["definition"], DASHBOARDS[name]))
        assert found
        label = found[2]
        eventually(lambda: any(label in labels for labels, _ in prometheus.series(found[1])), seconds=60)  # noqa: B023


def test_the_root_cause_dashboard_shows_the_crashed_nodes(prometheus: Prometheus) -> None:
    (query,) = (t["expr"] for name, title, t in queries() if (name, title) == ("root-cause", "Nodes"))
    asked = filled(query.replace("$root_cause", CAUSE), DASHBOARDS["root-cause"])
    expected = {("n0", 1.0), ("n1", 1.0), ("n2", 1.0)}
    eventually(
        lambda: {(labels["instance"], value) for labels, value in prometheus.series(asked)} == expected, seconds=60
    )
