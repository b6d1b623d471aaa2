"""A real Slurm with our hooks: whose a crash is by log, by GPU and by array, and which deaths the logs explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Kernel, Node, eventually
from tests.support.slurm import Slurm, slurm_of

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / "deploy/slurm"
GPUS = ("0000:1b:00.0", "0000:43:00.0")  # of the fixture, in the order of their indices
XID = "NVRM: Xid (PCI:{bus}): 31, pid=4242, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"

pytestmark = [pytest.mark.heavy, pytest.mark.deploy]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="module")
def slurm(folder: Path) -> Iterator[Slurm]:
    """A Slurm of two GPUs. The hooks are as shipped, but for the file that tells them where to write."""
    (folder / "defaults").write_text(f"GPUFAULT_JOBS_DIR={folder}/jobs\nGPUFAULT_ASK_SLURMCTLD=yes\n")
    for name in ("prolog", "epilog"):
        hook = folder / name
        text = (HOOKS / name).read_text().replace("/etc/default/gpufault", f"{folder}/defaults")
        hook.write_text(text.replace("set +a", "set +a\nexport SLURM_CONF", 1))
        hook.chmod(0o755)
    with slurm_of(f"Prolog={folder}/prolog", f"Epilog={folder}/epilog", gpus=2) as running:
        yield running


def records_of(node: Node, count: int) -> list[dict[str, object]]:
    return eventually(lambda: found if len(found := node.records()) >= count else None)


def deaths(node: Node) -> dict[str, float]:
    outcomes = ("explained", "unrecognised", "signal", "no_line")
    found = {name: node.value(f'gpufault_job_deaths_total{{outcome="{name}"}}') for name in outcomes}
    return {name: value for name, value in found.items() if value}


def test_jobs_of_a_real_slurm_have_the_right_ids(
    slurm: Slurm, folder: Path, make_node: Callable[..., Node], tmp_path: Path
) -> None:
    kernel = Kernel(tmp_path)
    node = make_node(
        [{"kind": "files", "paths": [f"{tmp_path}/jobs/*.out"]}, {"kind": "kmsg", "path": str(kernel.path)}],
        jobs={"dir": str(folder / "jobs")},
        facts={"rootfs": str(ROOT / "tests/fixtures/roots/nvidia")},
    )
    node.start()
    hold = f'echo "$SLURM_JOB_GPUS" >{tmp_path}/has.$SLURM_JOB_ID; until test -e {tmp_path}/end; do sleep 0.1; done'

    # Two jobs at once, each with a GPU of its own: a line of the kernel about a GPU is its job's.
    two = [slurm.submit(f"{hold}; exit 0", "--gres=gpu:1", "--output=/dev/null") for _ in range(2)]
    has = {
        eventually(
            lambda job=job: (
                (tmp_path / f"has.{job}").read_text().strip() if (tmp_path / f"has.{job}").exists() else None
            )
        ): job
        for job in two
    }
    assert sorted(has) == ["0", "1"]
    for bus in ("0000:1b:00", "0000:43:00"):
        kernel.say(XID.format(bus=bus))
    told = {str(record["gpu"]): record["job"] for record in records_of(node, 2)}
    for index, gpu in enumerate(GPUS):
        job = told[gpu]
        assert isinstance(job, dict)
        assert (job["id"], job["method"], job["confidence"], job["user"]) == (has[str(index)], "gpu", "high", "root")
    (tmp_path / "end").touch()
    assert [slurm.ended(job) for job in two] == [["COMPLETED"]] * 2

    # A task of an array: by its log, and by its GPU, under one id.
    (tmp_path / "end").unlink()
    script = f'test "$SLURM_ARRAY_TASK_ID" = 3 || exit 0; echo e2e crash seq=1 of job; {hold}; exit 1'
    array = slurm.submit(script, "--array=2-3", "--gres=gpu:2", f"--output={tmp_path}/jobs/slurm-%A_%a.out")
    eventually(lambda: list(tmp_path.glob("has.*"))[2:])
    records_of(node, 3)
    kernel.say(XID.format(bus="0000:43:00").replace("4242", "4343"))
    jobs = [record["job"] for record in records_of(node, 4)[2:]]
    assert [(job["id"], job["method"]) for job in jobs if isinstance(job, dict)] == [
        (f"{array}_3", "path"),
        (f"{array}_3", "gpu"),
    ]
    (tmp_path / "end").touch()
    assert sorted(slurm.ended(array)) == ["COMPLETED", "FAILED"]

    # A job that is killed without a word.
    killed = slurm.submit("echo fine so far; kill -9 $$", f"--output={tmp_path}/jobs/slurm-%j.out")
    assert slurm.ended(killed) == ["FAILED"]
    ends = eventually(lambda: found if len(found := node.records("job_end")) == 2 else None)
    assert {(end["job"]["id"], end["outcome"], end["exit_code"], end["signal"]) for end in ends} == {
        (f"{array}_3", "explained", 1, 0),
        (killed, "signal", 0, 9),
    }
    assert eventually(lambda: deaths(node) == {"explained": 1.0, "signal": 1.0} or None)
    node.kill()  # each end is counted once
    node.start()
    assert deaths(node) == {"explained": 1.0, "signal": 1.0}
