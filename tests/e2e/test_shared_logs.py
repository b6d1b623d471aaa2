"""Three daemons watch one folder: each line is counted once, by the node that runs the job, also when that one dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Node, eventually

pytestmark = pytest.mark.heavy
WAIT = 150.0  # a takeover takes 30 to 50 s
SERIES = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    (tmp_path / "shared/jobs").mkdir(parents=True)
    found = []
    for name in ("n0", "n1", "n2"):
        folder = tmp_path / name
        (folder / "root/sys/fs/cgroup/system.slice").mkdir(parents=True)
        source = {
            "kind": "files", "paths": [f"{tmp_path}/shared/jobs/*.out"], "shared": f"{tmp_path}/shared/gpufault",
            "watch": "poll",
        }  # fmt: skip
        found.append(Node(folder, [source], node=name, facts={"rootfs": str(folder / "root")}))
    (found[1].folder / "root/sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711").mkdir(parents=True)
    for node in found:
        node.start()
    yield found
    for node in found:
        if node.process is not None and node.process.poll() is None:
            node.kill()


def counted(node: Node) -> int:
    return int(node.value(SERIES) or 0)


def test_each_line_of_a_shared_log_is_counted_once_also_when_its_owner_is_killed(
    nodes: list[Node], tmp_path: Path
) -> None:
    log = tmp_path / "shared/jobs/slurm-4711.out"

    def say(*numbers: int) -> None:
        with log.open("a") as file:
            file.writelines(f"e2e crash seq={number} of slurm\n" for number in numbers)

    first, runs_the_job, third = nodes
    say(*range(10))
    eventually(lambda: counted(runs_the_job) == 10 or None, seconds=WAIT)
    assert (counted(first), counted(third)) == (0, 0)
    runs_the_job.kill()
    say(*range(10, 25))
    eventually(lambda: counted(first) + counted(third) == 15 or None, seconds=WAIT)
    runs_the_job.start()
    say(*range(25, 30))
    eventually(lambda: sum(map(counted, nodes)) == 30 or None, seconds=WAIT)
    assert counted(runs_the_job) == 10
    assert [path.name for path in log.parent.iterdir()] == [log.name]
    for node in nodes:
        assert node.stop() == 0
    told = sorted(record["captures"]["seq"] for node in nodes for record in node.records())
    assert len(told) == len(set(told))
