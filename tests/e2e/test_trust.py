"""What a hostile job writes against a real daemon: it takes nothing from the kernel's word, and joins no other's job."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import needs_root

from .conftest import Kernel, Node, eventually, gpufault

pytestmark = pytest.mark.heavy

NVLINK = "NVRM: Xid (PCI:0000:c1:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0)"
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error"
FORGED = [
    SWITCH,
    SWITCH.replace("Non-fatal", "Fatal"),
    "detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:C1:00.0 physical id 9 port 61",
    "detected NVSwitch fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:C1:00.0 physical id 9 port 61",
]
CORRECTED = "pcieport 0000:5d:02.0: AER: Corrected error received: 0000:5e:00.0"
LOST = "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
MMU_FAULT = (
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=4161, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
)


@pytest.fixture
def node(make_node: Callable[..., Node], kernel: Kernel, tmp_path: Path) -> Node:
    """A node that reads a kernel log and job logs."""
    sources = [{"kind": "kmsg", "path": str(kernel.path)}, {"kind": "files", "paths": [f"{tmp_path}/jobs/*.log"]}]
    return make_node(sources, incidents={"settle": "1s", "window": "10s"})


def unfit(node: Node) -> bool:
    """Whether `node-check` says that the node needs an operator."""
    command = [gpufault(), "node-check", f"--url=http://{node.address}"]
    code = subprocess.run(command, check=False, capture_output=True, timeout=30).returncode
    assert code in (0, 1)
    return code == 1


def first(node: Node, source: str) -> dict[str, object]:
    """The first record of a kind of log, as soon as there is one."""
    return eventually(lambda: next((r for r in node.records() if r["source"] == source), None))


def settled(node: Node, count: int) -> dict[str, dict[str, object]]:
    """The records of so many incidents, by job or signature."""
    records = eventually(lambda: found if len(found := node.records()) >= count else None)
    return {record["path"].split("/")[-2] if record["job"] else record["signature"]: record for record in records}


@pytest.mark.parametrize("forged", FORGED)
def test_a_line_of_a_job_does_not_make_the_kernels_fault_a_consequence(node: Node, kernel: Kernel, forged: str) -> None:
    node.start()
    (node.logs / "slurm-7.log").write_text(f"{forged}\n")
    kernel.say(NVLINK)
    fault = first(node, "kernel")
    assert (fault["role"], fault["root_cause"], fault["verdict"]) == (
        "root",
        "nvlink_or_switch_fault",
        "infrastructure",
    )
    counted = 'gpufault_incidents_total{root_cause="nvlink_or_switch_fault",signature="nv_xid_74_nvlink_error"}'
    eventually(lambda: node.value(counted) == 1.0 or None)
    assert unfit(node)


def test_a_corrected_error_of_another_device_does_not_confirm_what_a_job_says(node: Node, kernel: Kernel) -> None:
    node.start()
    kernel.say(CORRECTED)
    (node.logs / "slurm-7.log").write_text(f"{LOST}\n")
    said = first(node, "job")
    assert (said["root_cause"], said["evidence"]) == ("unknown", [])
    assert not unfit(node)


@needs_root
def test_a_user_does_not_take_part_in_the_job_of_another(make_node: Callable[..., Node], open_path: Path) -> None:
    node = make_node(
        [{"kind": "files", "paths": [f"{open_path}/*/slurm-*.out"]}], incidents={"settle": "1s", "window": "10s"}
    )
    node.start()
    for uid, user, line in ((64001, "mallory", "RuntimeError: CUDA error: unknown error"), (64002, "alice", ILLEGAL)):
        (open_path / user).mkdir()
        log = open_path / user / "slurm-4242.out"
        log.write_text(f"{line}\n")
        os.chown(log, uid, uid)
    records = settled(node, 2)
    assert {user: (r["role"], r["caused_by"]) for user, r in records.items()} == {
        "alice": ("root", None), "mallory": ("root", None),
    }  # fmt: skip


def test_one_gpus_fault_explains_no_other_pods_crash(
    make_node: Callable[..., Node], kernel: Kernel, tmp_path: Path
) -> None:
    pods = tmp_path / "pods"
    sources = [
        {"kind": "kmsg", "path": str(kernel.path)},
        {"kind": "files", "paths": [f"{pods}/*/*/*.log"], "format": "cri"},
    ]
    node = make_node(sources, incidents={"settle": "2s", "window": "30s"})
    node.start()
    logs = []
    for number in range(8):
        folder = pods / f"team-{number}_train-0_0a1b2c3d-0000-4000-8000-00000000000{number}" / "main"
        folder.mkdir(parents=True)
        logs.append(folder / "0.log")
        logs[-1].write_text(f"{stamp()} stdout F step 1\n")
    read = "gpufault_source_files"
    eventually(lambda: node.value(read + '{source="files"}') == 8.0 or None)
    kernel.say(MMU_FAULT)
    for log in logs[:5]:
        with log.open("a") as file:
            file.write(f"{stamp()} stderr F {ILLEGAL}\n")
    records = eventually(lambda: found if len(found := node.records()) >= 6 else None)
    crashes = [r for r in records if r["source"] == "job"]
    assert sorted(r["job"]["id"] for r in crashes) == [f"team-{number}/train-0" for number in range(5)]
    assert {r["role"] for r in crashes} == {"root"}
    assert {beside["signature"] for r in crashes for beside in r["same_time"]} == {"nv_xid_31_mmu_fault"}


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())
