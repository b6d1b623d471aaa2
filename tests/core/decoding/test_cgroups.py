"""Control groups of jobs: a fixture for each scheduler, cgroup version, kubelet driver and container runtime."""

from __future__ import annotations

import time

import pytest

from exporter.core.decoding.cgroups import CgroupJob, job_of_group, job_of_process

UID = "3c1f0d5e-8a2b-4c6d-9e7f-0123456789ab"
BARE, UNDERSCORED = UID.replace("-", ""), UID.replace("-", "_")
ID = "0a1b2c3d" * 8

SLURM = {
    "v1, every hierarchy": (
        "10:memory:/slurm/uid_1000/job_4242/step_0/task_3\n9:cpuset:/slurm/uid_1000/job_4242/step_0\n1:name=systemd:/\n",
        CgroupJob("slurm", "4242", step="0", rank="3", user="uid 1000"),
    ),
    "v1, several slurmd": (
        "9:memory:/slurm_node7/uid_1000/job_4242/step_batch/task_0\n",
        CgroupJob("slurm", "4242", step="batch", rank="0", user="uid 1000"),
    ),
    "v1, ssh adopted": (
        "9:memory:/slurm/uid_1000/job_4242/step_extern\n1:name=systemd:/user.slice/user-1000.slice/session-2.scope\n",
        CgroupJob("slurm", "4242", step="extern", user="uid 1000"),
    ),
    "v2": (
        "0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_3\n",
        CgroupJob("slurm", "4242", step="0", rank="3"),
    ),
    "v2, batch": (
        "0::/system.slice/slurmstepd.scope/job_4242/step_batch/user/task_0\n",
        CgroupJob("slurm", "4242", step="batch", rank="0"),
    ),
    "v2, several slurmd": (
        "0::/system.slice/node7_slurmstepd.scope/job_4242/step_0/user/task_0\n",
        CgroupJob("slurm", "4242", step="0", rank="0"),
    ),
    "v2, a step of slurmstepd": (
        "0::/system.slice/slurmstepd.scope/job_4242/step_interactive/slurm\n",
        CgroupJob("slurm", "4242", step="interactive"),
    ),
    "v2, heterogeneous": (
        "0::/system.slice/slurmstepd.scope/job_4242/step_0+1/user/task_0\n",
        CgroupJob("slurm", "4242", step="0", rank="0"),
    ),
    "v2, a container below the job": (
        f"0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0/libpod-{ID}.scope\n",
        CgroupJob("slurm", "4242", step="0", rank="0"),
    ),
}


def pod(runtime: str | None = None) -> CgroupJob:
    return CgroupJob("kubernetes", BARE, container=ID, runtime=runtime)


PODS = {
    "v2, systemd, containerd, burstable": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        pod("containerd"),
    ),
    "v2, systemd, containerd, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        pod("containerd"),
    ),
    "v2, systemd, CRI-O": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/crio-{ID}.scope",
        pod("cri-o"),
    ),
    "v2, systemd, CRI-O with a group of its own": (
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope/container",
        pod("cri-o"),
    ),
    "v1, systemd, docker": (
        f"4:memory:/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{ID}.scope\n1:name=systemd:/\n",
        pod("docker"),
    ),
    "v1, cgroupfs, containerd": (f"4:memory:/kubepods/burstable/pod{UID}/{ID}\n", pod()),
    "v1, cgroupfs, guaranteed": (f"4:memory:/kubepods/pod{UID}/{ID}\n3:cpu:/kubepods/pod{UID}\n", pod()),
    "v2, cgroupfs, CRI-O": (f"0::/kubepods/besteffort/pod{UID}/crio-{ID}", pod("cri-o")),
    "containerd without the systemd driver": (
        f"4:memory:/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}\n",
        pod("containerd"),
    ),
    "kind": (
        f"0::/docker/{ID}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        pod("containerd"),
    ),
    "seen from another pod, systemd": (
        f"0::/../../kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        pod("containerd"),
    ),
    "seen from another pod, cgroupfs": (f"0::/../../pod{UID}/{ID}", pod()),
    "a static pod": (f"0::/kubepods/burstable/pod{BARE}/{ID}", pod()),
    "the pod's own group": (f"0::/kubepods/pod{UID}", CgroupJob("kubernetes", BARE)),
}

NOBODY = {
    "a service": "0::/system.slice/sshd.service\n",
    "a session": "0::/user.slice/user-1000.slice/session-2.scope\n",
    "a user's own name for a group": "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7/step_0\n",
    "a user's own pod": f"0::/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}/{ID}\n",
    "slurmd": "0::/system.slice/slurmd.service\n",
    "slurmstepd's own group": "0::/system.slice/slurmstepd.scope/system\n",
    "a job elsewhere": "0::/system.slice/cron.service/job_7/step_0\n",
    "docker": f"0::/system.slice/docker-{ID}.scope\n",
    "two jobs": "5:memory:/slurm/uid_1/job_7/step_0\n4:devices:/slurm/uid_1/job_8/step_0\n",
    "half a uid": "0::/kubepods/burstable/pod3c1f0d5e-8a2b/0a1b\n",
    "not a cgroup": "\x00\n:::\n",
    "nothing": "",
}


@pytest.mark.parametrize("name", [*SLURM, *PODS])
def test_a_control_group_of_a_scheduler_names_job_step_and_container(name: str) -> None:
    cgroup, expected = {**SLURM, **PODS}[name]
    assert job_of_process(cgroup) == expected


@pytest.mark.parametrize("name", NOBODY)
def test_any_other_control_group_names_no_job(name: str) -> None:
    assert job_of_process(NOBODY[name]) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/slurm/uid_1/job_7/step_0/task_0/kubepods/pod" + UID, "slurm 7"),
        ("/slurm/uid_1/job_7/step_0/task_0/slurm/uid_2/job_8", "slurm 7"),
        (f"/kubepods/pod{UID}/{ID}/slurm/uid_0/job_8/step_0", f"pod {BARE}"),
        (f"/kubepods/pod{UID}/{ID}/kubepods/pod{UID.replace('3', '4')}/{ID}", f"pod {BARE}"),
    ],
)
def test_a_group_that_a_job_creates_below_its_own_does_not_count(path: str, expected: str) -> None:
    job = job_of_group(path)
    assert job is not None
    assert job.name == expected


def test_no_group_takes_long() -> None:
    start = time.process_time()
    for part in ("slurm/", "a-kubepods-", "kubepods/pod", "x_" * 50 + "slurmstepd.scope/", "../"):
        job_of_process(f"0::/{part * 20_000}\n" * 100)
    assert time.process_time() - start < 1.0  # 20 ms here
