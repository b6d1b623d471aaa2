"""From a log line to a page: eight real daemons, Prometheus with the shipped rules, Alertmanager with the shipped example,
and a receiver instead of a pager.

Only times are shortened: of scrapes, of evaluations, of Alertmanager's grouping. The expressions are those of the file.
The score compares this hour with the hours of the past week, so two days of a quiet fleet are written into Prometheus's
store before it starts: what it would have scraped of these daemons, and what the rules would have recorded of that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import Node, eventually
from tests.support.monitoring import (
    DEPLOY,
    Alertmanager,
    Notification,
    Prometheus,
    Receiver,
    fall_off_the_bus,
    hasty_rules,
    node_at,
    quiet_days,
    write_history,
)
from tests.support.programs import needs

ROOT = Path(__file__).parents[2]
NODES = 8
STORM, FATAL = "n0", "n7"  # the six between them crash together
CAUSE = "pytorch_watchdog_query_during_capture"
FATAL_SIGNATURE = "nv_xid_79_fallen_off_bus"
CRASH = (ROOT / "exporter/demo/logs/slurm-48260.out").read_text(encoding="utf-8")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.deploy,
    needs("prometheus", "prometheus-alertmanager"),
]


@dataclass
class Fleet:
    """Daemons by their nodes' names, who watches them, and what reached people."""

    nodes: dict[str, Node]
    prometheus: Prometheus
    receiver: Receiver

    def crash(self, name: str, jobs: int) -> None:
        crash = re.sub(r"\bE\d{4} \d\d:\d\d:\d\d", time.strftime("E%m%d %H:%M:%S", time.gmtime()), CRASH)
        for job in range(jobs):
            number = f"{name[1:]}{1000 + job}"
            (self.nodes[name].logs / f"slurm-{number}.log").write_text(crash.replace("48260", number))

    def sent(self, receiver: str, alert: str) -> list[Notification]:
        return [sent for sent in self.receiver.sent_to(receiver) if alert in sent.names]

    def look_again(self, times: int = 15) -> None:
        """Wait until every rule has been evaluated so often, and each evaluation reached Alertmanager."""
        evaluated = "min(prometheus_rule_group_iterations_total)"
        sent = "sum(prometheus_notifications_sent_total) - sum(prometheus_notifications_queue_length)"
        evaluated_before, sent_before = self.number(evaluated), self.number(sent)
        eventually(lambda: self.number(evaluated) >= evaluated_before + times, seconds=120)
        eventually(lambda: self.number(sent) > sent_before, seconds=120)

    def number(self, expression: str) -> float:
        """The one value of a query, as soon as there is one."""
        return eventually(lambda: self.prometheus.query(expression) or None)[0]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    nodes = {f"n{number}": node_at(tmp_path / f"n{number}") for number in range(NODES)}
    receiver = Receiver()
    running: list[Alertmanager | Prometheus] = []
    try:
        for node in nodes.values():
            node.start()
        labels = {node.address: {"cluster": "e2e", "instance": name} for name, node in nodes.items()}
        write_history(tmp_path, quiet_days(list(nodes), now=time.time()))
        alertmanager = Alertmanager(tmp_path, hasty_alertmanager(tmp_path, receiver.address))
        running.append(alertmanager)
        prometheus = Prometheus(
            tmp_path, {"gpufault": labels}, rules=hasty_rules(tmp_path), alertmanager=alertmanager.address
        )
        running.append(prometheus)
        eventually(lambda: prometheus.query("count(gpufault_build_info)") == [float(NODES)], seconds=120)
        eventually(lambda: prometheus.query("cluster:gpufault_nodes:count") == [float(NODES)], seconds=120)
        yield Fleet(nodes, prometheus, receiver)
    finally:
        for program in reversed(running):
            program.stop()
        receiver.stop()
        for node in nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.kill()


def hasty_alertmanager(folder: Path, receiver: str) -> Path:
    """The example, with its receivers below `receiver` and its waits in seconds."""
    text = (DEPLOY / "alertmanager/alertmanager.yml").read_text(encoding="utf-8")
    text = re.sub(r"http://(\w+)\.example\.org/gpufault", rf"http://{receiver}/\1", text)
    text = re.sub(r"(group_wait|group_interval): \S+", r"\1: 2s", text)
    path = folder / "alertmanager.yml"
    path.write_text(text)
    return path


def test_a_spike_and_a_first_fatal_fault_page_once_and_a_storm_does_not(
    fleet: Fleet,
) -> None:
    fleet.crash(STORM, jobs=40)
    (storm,) = eventually(lambda: fleet.sent("tickets", "GpufaultNodeStorm") or None, seconds=120)
    assert storm.alerts[0]["labels"]["instance"] == STORM
    counted = f'sum(gpufault_incidents_total{{instance="{STORM}",root_cause="{CAUSE}"}})'
    eventually(lambda: fleet.prometheus.query(counted) == [40.0], seconds=120)
    fleet.look_again()
    assert fleet.receiver.sent_to("pager") == []

    fall_off_the_bus(fleet.nodes[FATAL])
    (fatal,) = eventually(lambda: fleet.receiver.sent_to("pager") or None, seconds=120)
    assert [alert["labels"] for alert in fatal.alerts] == [
        {"alertname": "GpufaultFatalSignature", "cluster": "e2e", "severity": "critical", "signature": FATAL_SIGNATURE}
    ]
    assert fatal.alerts[0]["annotations"]["description"].startswith(
        f"{FATAL_SIGNATURE} in the kernel's log of cluster e2e, for the first time in a week: {FATAL}."
        " Verdicts: infrastructure (1)."
    )

    six = sorted(fleet.nodes.keys() - {STORM, FATAL})
    for name in six:
        fleet.crash(name, jobs=1)
    spike = eventually(lambda: next(iter(fleet.receiver.sent_to("pager")[1:]), None), seconds=120)
    assert [alert["labels"] for alert in spike.alerts] == [
        {"alertname": "GpufaultCrashSpike", "cluster": "e2e", "severity": "critical", "root_cause": CAUSE}
    ]
    fleet.look_again(times=30)
    assert fleet.receiver.sent_to("pager") == [fatal, spike]
    assert fleet.prometheus.query(
        f'sum(cluster_root_cause_kind:gpufault_crashed_nodes:count1h{{root_cause="{CAUSE}"}})'
    ) == [7.0]
    assert fleet.sent("tickets", "GpufaultFatalNode") == []  # the page has said so
