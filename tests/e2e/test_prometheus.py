"""A real Prometheus scrapes the real daemon: what an alert would see of a first crash, and of a kill -9."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.monitoring import Prometheus, free_port

from .conftest import Node, eventually

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus (apt install prometheus)"),
]
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


def test_increase_sees_a_first_crash_and_a_kill_is_no_counter_reset(
    make_node: Callable[..., Node], prometheus: Callable[[str], Prometheus]
) -> None:
    node = make_node()
    port = str(free_port())
    node.start(port=port)
    server = prometheus(node.address)

    eventually(lambda: (server.query(f"count_over_time({CRASHES}[5m])") or [0])[0] >= 3 or None, seconds=60)
    assert server.query(f"increase({CRASHES}[5m])") == [0.0]
    (node.logs / "job.log").write_text("e2e crash seq=1 of job\n")
    eventually(lambda: server.query(CRASHES) == [1.0] or None, seconds=60)
    increase = eventually(lambda: next((v for v in server.query(f"increase({CRASHES}[5m])") if v > 0), None))
    assert increase == pytest.approx(1.0, abs=0.2)  # Prometheus extrapolates to the ends of the window

    node.kill()
    with (node.logs / "job.log").open("a") as log:
        log.write("e2e crash seq=2 of job\n")
    node.start(port=port)
    lines = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
    eventually(lambda: server.query(lines) == [2.0] or None, seconds=60)
    assert server.query('resets(gpufault_incidents_total{signature="e2e_crash"}[5m]) > 0') == []
    assert server.query(f"resets({lines}[5m])") == [0.0]
    assert server.query('up{job="gpufault"}') == [1.0]
