"""deploy/npd, with the real node-problem-detector if installed, else against its contract."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.outputs.npd import CONDITION
from tests.deploy.tools import tool
from tests.e2e.conftest import Node, eventually, gpufault, make_node
from tests.e2e.test_prometheus import free_port
from tests.support.programs import reason

__all__ = ["make_node"]

NPD = Path(__file__).parents[2] / "deploy/npd"
CHECK = NPD / "check-gpufault.sh"
CONFIG = json.loads((NPD / "gpufault.json").read_text())
PACK = """
pack: npd
signatures:
  - id: npd_crash
    title: A GPU that is lost
    vendor: any
    layer: host
    severity: critical
    sources: [kernel]
    patterns: ['npd crash seq=(?P<seq>\\d+)']
root_causes:
  - id: npd_lost
    title: The GPU is lost
    signatures: [npd_crash]
    when: {capture: seq, exists: true}
    verdict: infrastructure
    needs_operator: true
    strength: A
    remediation: Mend it.
"""


def check(url: str, command: str = "") -> tuple[int, str]:
    environ = os.environ | {"GPUFAULT": command or gpufault(), "GPUFAULT_URL": url}
    done = subprocess.run([str(CHECK)], env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.rstrip("\n")


@pytest.fixture
def node(make_node: Callable[..., Node], tmp_path: Path) -> Node:
    """A node that runs, and can lose a GPU. Only the kernel's word makes it unfit for jobs."""
    (tmp_path / "kmsg").touch()
    node = make_node([{"kind": "kmsg", "path": str(tmp_path / "kmsg")}])
    (node.folder / "packs" / "npd.yaml").write_text(PACK)
    node.start()
    return node


def lose_a_gpu(node: Node) -> None:
    with (node.folder / "kmsg").open("a") as log:
        log.write(f"2,1,{int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)},-;npd crash seq=1\n")


def test_the_check_uses_the_exit_codes_of_a_plugin(node: Node) -> None:
    assert check("http://127.0.0.1:1")[0] == 2
    code, told = check("http://127.0.0.1:1", "/nowhere/" + "x" * 90)
    assert code == 2
    assert len(told) <= CONFIG["pluginConfig"]["max_output_length"]
    assert check(f"http://{node.address}") == (0, "healthy")
    lose_a_gpu(node)
    code, told = eventually(lambda: found if (found := check(f"http://{node.address}"))[0] else None)
    assert code == 1
    assert told.startswith("npd_lost npd_crash ")
    assert len(told) <= CONFIG["pluginConfig"]["max_output_length"]


def test_the_npd_configuration_is_valid_and_names_the_condition() -> None:
    """node-problem-detector, pkg/custompluginmonitor/types/config.go: unknown keys it would pass over in silence."""
    assert CONFIG.keys() == {"plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules"}
    assert CONFIG["plugin"] == "custom"
    known = {"invoke_interval", "timeout", "max_output_length", "concurrency"}
    assert CONFIG["pluginConfig"].keys() == {*known, "enable_message_change_based_condition_update"}
    (condition,) = CONFIG["conditions"]
    assert condition.keys() == {"type", "reason", "message"}
    (rule,) = CONFIG["rules"]
    assert rule.keys() == {"type", "condition", "reason", "path"}
    assert rule["type"] == "permanent"
    assert rule["condition"] == condition["type"] == CONDITION
    assert Path(rule["path"]).name == CHECK.name


@pytest.mark.heavy
@pytest.mark.deploy
def test_npd_sets_the_condition(node: Node, tmp_path: Path) -> None:
    program = tool("node-problem-detector")
    if not program:
        pytest.skip(reason(["node-problem-detector"]))
    config = json.loads(json.dumps(CONFIG))
    config["rules"][0]["path"] = str(CHECK)
    config["pluginConfig"]["invoke_interval"] = "1s"
    (tmp_path / "gpufault.json").write_text(json.dumps(config))
    port = free_port()
    arguments = ["--enable-k8s-exporter=false", "--port=0", f"--prometheus-port={port}"]
    monitor = f"--config.custom-plugin-monitor={tmp_path / 'gpufault.json'}"
    environ = os.environ | {"GPUFAULT": gpufault(), "GPUFAULT_URL": f"http://{node.address}"}
    with (tmp_path / "npd.log").open("wb") as log:
        npd = subprocess.Popen([program, *arguments, monitor], env=environ, stdout=log, stderr=log)

    def gauge(value: int) -> bool | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except OSError:
            return None
        shown = [line for line in text.splitlines() if line.startswith("problem_gauge") and "GPUNeedsOperator" in line]
        return True if shown and 'type="GPUFault"' in shown[0] and shown[0].endswith(f" {value}") else None

    try:
        eventually(lambda: gauge(0), 60)
        lose_a_gpu(node)
        eventually(lambda: gauge(1), 60)
    finally:
        npd.kill()
        npd.wait()
