"""A real Prometheus scrapes the real daemon: what an alert would see of a first crash, and of a kill -9."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.monitoring import Prometheus, free_port, hasty_rules, node_at, write_history
from tests.support.programs import needs

from .conftest import Node, eventually

pytestmark = [
    pytest.mark.heavy,
    needs("prometheus"),
]
# A fault that the kernel reports and that a job's log can name too, as `device lost` in both.
FATAL_PACK = """
pack: fatal
signatures:
  - id: e2e_lost
    title: A GPU is lost
    vendor: any
    layer: host
    severity: critical
    sources: [job, kernel]
    patterns: ['e2e GPU (?P<gpu>\\S+) is lost']
root_causes:
  - id: e2e_bad_gpu
    title: The GPU is broken
    signatures: [e2e_lost]
    when: {capture: gpu, exists: true}
    verdict: infrastructure
    strength: A
    remediation: Replace it.
"""
CRASHES = 'gpufault_incidents_total{signature="e2e_crash",root_cause="e2e_cause"}'


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[str], Prometheus]]:
    running: list[Prometheus] = []

    def start(target: str) -> Prometheus:
        running.append(Prometheus(tmp_path, {"gpufault": {target: {}}}))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def kmsg_node(tmp_path: Path) -> Iterator[Node]:
    """A node whose kernel's log is a file."""
    node = node_at(tmp_path / "n")
    yield node
    if node.process is not None and node.process.poll() is None:
        node.kill()


def test_a_first_crash_is_a_rise_and_a_kill_is_no_counter_reset(
    make_node: Callable[..., Node], prometheus: Callable[[str], Prometheus]
) -> None:
    node = make_node(incidents={"settle": "8s", "window": "10s"})  # some scrapes long, as by default
    port = str(free_port())
    node.start(port=port)
    server = prometheus(node.address)

    unknown = CRASHES.replace("e2e_cause", "unknown")
    eventually(lambda: (server.query(f"count_over_time({unknown}[5m])") or [0])[0] >= 3 or None, seconds=60)
    assert server.query(f"increase({unknown}[5m])") == [0.0]
    (node.logs / "job.log").write_text("e2e crash seq=1 of job\n")
    eventually(lambda: server.query(CRASHES) == [1.0] or None, seconds=60)
    assert server.query(f"{CRASHES} - ({CRASHES} offset 1h or {CRASHES} * 0)") == [
        1.0
    ]  # its pair appears with the crash
    of_signature = 'sum(gpufault_incidents_total{signature="e2e_crash"})'
    assert server.query(f"{of_signature} - min_over_time({of_signature}[5m:1s])") == [1.0]

    node.kill()
    with (node.logs / "job.log").open("a") as log:
        log.write("e2e crash seq=2 of job\n")
    node.start(port=port)
    lines = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
    eventually(lambda: server.query(lines) == [2.0] or None, seconds=60)
    assert server.query('resets(gpufault_incidents_total{signature="e2e_crash"}[5m]) > 0') == []
    assert server.query(f"resets({lines}[5m])") == [0.0]
    assert server.query('up{job="gpufault"}') == [1.0]


def test_a_forged_line_is_not_fatal_on_a_node_whose_kernel_once_reported_the_fault(
    tmp_path: Path, kmsg_node: Node
) -> None:
    node = kmsg_node
    (node.folder / "packs/fatal.yaml").write_text(FATAL_PACK)
    port = str(free_port())
    node.start(port=port)

    def kernel(gpu: str) -> None:
        clock = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // 1000
        with (node.folder / "kmsg").open("a") as log:
            log.write(f"3,{clock},{clock},-;e2e GPU {gpu} is lost\n")

    def verdicts(source: str, verdict: str) -> str:
        return (
            'gpufault_incident_verdicts_total{domain="unknown",root_cause="e2e_bad_gpu",signature="e2e_lost",'
            f'source="{source}",verdict="{verdict}"}}'
        )

    trusted, forged = verdicts("kernel", "infrastructure"), verdicts("job", "infrastructure")
    kernel("0000:3b:00.0")
    eventually(lambda: node.value(trusted) == 1.0 or None)

    # What a Prometheus with these rules would have of two hours in which nothing else happened.
    target = {"cluster": "e2e", "instance": "n"}
    own = 'cluster="e2e",job="gpufault",instance="n"'
    pair = 'signature="e2e_lost",root_cause="e2e_bad_gpu"'
    ones = [(time.time() - seconds, 1.0) for seconds in range(7200, 0, -60)]
    history = (
        f"up{{{own}}}",
        f"gpufault_incidents_total{{{own},{pair}}}",
        trusted.replace("{", f"{{{own},"),
        trusted.replace(
            'gpufault_incident_verdicts_total{domain="unknown"', f"instance_incident:gpufault_incidents:total{{{own}"
        ),
    )
    write_history(tmp_path, [(series, ones) for series in history])
    server = Prometheus(tmp_path, {"gpufault": {node.address: target}}, rules=hasty_rules(tmp_path))
    try:
        rounds = 'min(prometheus_rule_group_iterations_total{rule_group=~".*gpufault-(incidents|crashes)"})'
        fatal = 'ALERTS{alertname=~"GpufaultFatal.*"}'

        def evaluated(times: int) -> None:
            before = eventually(lambda: server.query(rounds))[0]
            eventually(lambda: (server.query(rounds) or [0.0])[0] >= before + times or None, seconds=60)

        (node.logs / "job.log").write_text("e2e GPU 0000:3b:00.0 is lost\n")
        eventually(lambda: server.query(forged) == [1.0] or None, seconds=60)
        evaluated(3)
        both = 'gpufault_incidents_total{signature="e2e_lost",root_cause="e2e_bad_gpu"}'
        assert eventually(lambda: server.query(both)) == [2.0]
        assert server.query(fatal) == []

        kernel("0000:5e:00.0")
        eventually(lambda: server.query(trusted) == [2.0] or None, seconds=60)
        new = "instance_signature:gpufault_fatal_incidents:delta1h"
        assert eventually(lambda: server.query(new), seconds=60) == [1.0]
        fired = {"GpufaultFatalNode", "GpufaultFatalSignature"}  # one after the other, within an evaluation
        eventually(lambda: {labels["alertname"] for labels, _ in server.series(fatal)} == fired or None, seconds=60)

        node.kill()
        eventually(lambda: server.query('up{job="gpufault"}') == [0.0] or None, seconds=60)
        node.start(port=port)
        eventually(lambda: server.query(trusted) == [2.0] or None, seconds=60)
        evaluated(3)
        assert eventually(lambda: server.query(new)) == [1.0]
    finally:
        server.stop()
