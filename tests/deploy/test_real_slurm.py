"""The real Slurm that other tests use works."""

from pathlib import Path

import pytest

from tests.support.slurm import Slurm, processes_of, slurm_of

pytestmark = [pytest.mark.heavy, pytest.mark.deploy]


def test_a_batch_job_leaves_its_output(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit("echo it is $SLURM_JOB_ID; srun echo a step of it", f"--output={tmp_path}/slurm-%j.out")
    assert slurm.ended(job) == ["COMPLETED"]
    assert (tmp_path / f"slurm-{job}.out").read_text() == f"it is {job}\na step of it\n"


def test_tasks_of_an_array_run_in_parallel(slurm: Slurm, tmp_path: Path) -> None:
    meet = f"cd {tmp_path}; touch $SLURM_ARRAY_TASK_ID; until test -e 0 -a -e 1 -a -e 2 -a -e 3; do sleep 0.1; done"
    job = slurm.submit(meet, "--array=0-3", "--output=/dev/null")
    assert slurm.ended(job) == ["COMPLETED"] * 4


def test_two_clusters_run_in_parallel_and_leave_no_process(slurm: Slurm, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with slurm_of() as other:
        other.submit(f"touch {begun}; exec sleep 1000", "--output=/dev/null")
        assert slurm.ended(slurm.submit(f"until test -e {begun}; do sleep 0.1; done", "--output=/dev/null"))
        assert len(processes_of(other.folder)) >= 5  # three daemons, slurmstepd and the job
    assert processes_of(other.folder) == []
    assert not other.folder.exists()
    assert slurm.node()[0] in ("idle", "mixed", "completing")
