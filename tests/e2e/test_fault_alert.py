"""A fault opens, its alert fires, a reset clears it, and the alert is resolved: a real Prometheus and a real Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.monitoring import Alertmanager, Prometheus, Receiver, free_port, hasty_rules, node_at
from tests.support.programs import needs

from .conftest import Node, eventually

pytestmark = [
    pytest.mark.heavy,
    needs("prometheus", "prometheus-alertmanager"),
]
FAULT = (
    "NVRM: Xid (PCI:0000:c1:00): 48, pid=4242, name=python3, An uncorrectable double bit error (DBE) has been detected"
)
RECOVERED = "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
WAIT = 90.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
def alertmanager(tmp_path: Path, receiver: Receiver) -> Iterator[Alertmanager]:
    path = tmp_path / "alertmanager.yml"
    config = {
        "route": {
            "receiver": "people", "group_by": ["alertname"], "group_wait": "1s", "group_interval": "1s",
        },
        "receivers": [{"name": "people", "webhook_configs": [{"url": f"http://{receiver.address}/people"}]}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(config))
    running = Alertmanager(tmp_path, path)
    yield running
    running.stop()


def say(node: Node, text: str) -> None:
    clock = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // 1000
    with (node.folder / "kmsg").open("a") as kernel:
        kernel.write(f"3,901,{clock},-;{text}\n")


def test_the_alert_of_a_fault_ends_when_a_reset_has_cleared_it(
    tmp_path: Path, receiver: Receiver, alertmanager: Alertmanager
) -> None:
    node = node_at(tmp_path / "n")
    node.start(port=str(free_port()))
    server = Prometheus(
        tmp_path, {"gpufault": {node.address: {}}}, rules=hasty_rules(tmp_path), alertmanager=alertmanager.address
    )
    try:
        eventually(lambda: server.query("up{job='gpufault'}") == [1.0] or None, seconds=WAIT)

        def statuses(name: str) -> list[str]:
            return [sent.status for sent in receiver.sent_to("people") if name in sent.names]

        say(node, FAULT)
        eventually(lambda: statuses("GpufaultNodeFault") == ["firing"] or None, seconds=WAIT)
        [alert] = next(sent.alerts for sent in receiver.sent_to("people") if "GpufaultNodeFault" in sent.names)
        labels = {name: alert["labels"][name] for name in ("gpu", "root_cause", "action", "severity")}
        assert labels == {
            "gpu": "0000:c1:00.0", "root_cause": "gpu_memory_uncorrectable_ecc", "action": "reset_gpu", "severity": "warning"
        }  # fmt: skip
        node.kill()  # neither an outage nor a restart of the daemon resolves anything
        eventually(lambda: server.query("up{job='gpufault'}") == [0.0] or None, seconds=WAIT)
        evaluations = "count_over_time(instance_gpu_root_cause:gpufault_node_fault:open[1h])"
        seen = server.query(evaluations)[0]
        eventually(lambda: server.query(evaluations)[0] > seen + 2 or None, seconds=WAIT)
        node.start(port=node.address.rpartition(":")[2])
        eventually(lambda: server.query("up{job='gpufault'}") == [1.0] or None, seconds=WAIT)
        assert server.query("gpufault_node_fault") == [1.0]
        say(node, RECOVERED)
        eventually(lambda: statuses("GpufaultNodeFault")[-1] == "resolved" or None, seconds=WAIT)
        assert statuses("GpufaultNodeFault").count("resolved") == 1
    finally:
        server.stop()
        node.kill()
