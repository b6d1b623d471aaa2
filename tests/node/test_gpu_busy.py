"""For how long GPUs were busy: by what their driver says, else by who holds them; else it is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.config.node import FactsConfig
from exporter.core.facts.gpus import Gpu
from exporter.node.gpu_processes import GpuProcesses
from exporter.node.heartbeat import GpuBusy, Heartbeat, cards_of
from exporter.probes.probe import Host
from tests.support.processes import Proc

AMD = [Gpu(pci=f"0000:c{i}:00.0", vendor="amd") for i in (1, 2)]
NVIDIA = [Gpu(pci=f"0000:{i}a:00.0", vendor="nvidia") for i in (1, 2)]


def says(root: Path, gpu: Gpu, percent: str) -> None:
    device = root / "sys/bus/pci/devices" / gpu.pci
    device.mkdir(parents=True, exist_ok=True)
    (device / "gpu_busy_percent").write_text(percent + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for minor, gpu in enumerate(NVIDIA):
        information = tmp_path / "proc/driver/nvidia/gpus" / gpu.pci / "information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n")
    (tmp_path / "sys/class/drm/renderD128").mkdir(parents=True)
    (tmp_path / "sys/class/drm/renderD128/device").symlink_to(f"../../../{AMD[0].pci}")
    return tmp_path


def test_what_amdgpu_says_counts_before_who_holds_the_card(root: Path) -> None:
    busy = GpuBusy(root)
    for now, percents in ((0.0, ("97", "0")), (30.0, ("3", "0")), (60.0, ("0", "0")), (90.0, ("0", "0"))):
        for gpu, percent in zip(AMD, percents, strict=True):
            says(root, gpu, percent)
        busy.sample(now, 30.0, AMD, {"/dev/dri/renderD128"}, wait=True)

    assert busy.hours(AMD, 3600.0) == 0.5  # the first card at two of four looks


def test_a_card_of_another_driver_is_busy_while_it_is_held(root: Path) -> None:
    busy = GpuBusy(root)
    busy.sample(0.0, 30.0, NVIDIA, {"/dev/nvidia1", "/dev/nvidia0"}, wait=True)
    busy.sample(30.0, 30.0, NVIDIA, {"/dev/nvidia1"}, wait=True)

    assert busy.hours(NVIDIA, 3600.0) == 1.5


def test_each_heartbeat_is_about_the_looks_since_the_last(root: Path) -> None:
    busy = GpuBusy(root)
    busy.sample(0.0, 30.0, NVIDIA, {"/dev/nvidia0"}, wait=True)
    assert busy.hours(NVIDIA, 3600.0) == 1.0
    busy.sample(30.0, 30.0, NVIDIA, (), wait=True)
    assert busy.hours(NVIDIA, 3600.0) == 0.0


def test_what_was_not_seen_is_not_known_rather_than_idle(root: Path) -> None:
    busy = GpuBusy(root)
    assert busy.hours(AMD, 3600.0) is None  # no look yet
    says(root, AMD[0], "50")
    busy.sample(0.0, 30.0, AMD, None, wait=True)
    assert busy.hours(AMD, 3600.0) is None  # of the second card nobody tells
    busy.sample(30.0, 30.0, NVIDIA, None, wait=True)
    assert busy.hours(NVIDIA, 3600.0) is None
    assert busy.hours([], 3600.0) is None


def test_it_is_looked_no_more_often_than_asked_for(root: Path) -> None:
    busy = GpuBusy(root)
    for now, held in ((0.0, ["/dev/nvidia0"]), (29.0, []), (30.0, ["/dev/nvidia0"])):
        busy.sample(now, 30.0, NVIDIA[:1], held, wait=True)

    assert busy.hours(NVIDIA[:1], 3600.0) == 1.0


def test_device_files_lead_to_the_addresses_of_their_cards(root: Path) -> None:
    devices = ["/dev/dri/renderD128", "/dev/nvidia1", "/dev/nvidia7", "/dev/dri/renderD200"]

    assert cards_of(Host(root), devices) == {AMD[0].pci, NVIDIA[1].pci}


def test_a_heartbeat_says_the_hours_and_the_busy_hours(root: Path) -> None:
    settings = FactsConfig(interval="300s", rootfs=root)
    heartbeat = Heartbeat(settings, 0.0)
    assert not heartbeat.sample(299.0, settings, (), GpuProcesses(root))
    assert heartbeat.sample(300.0, settings, (), GpuProcesses(root))
    assert heartbeat.record("n1", 360.0, ()) == {
        "kind": "heartbeat", "time": "1970-01-01T00:06:00.000Z", "node": "n1", "hours": 0.1, "gpu_busy_hours": None,
    }  # fmt: skip
    assert heartbeat.sample(359.0, settings, (), GpuProcesses(root))  # the clock was set back


def test_a_clock_that_is_set_years_ahead_was_no_watching(root: Path) -> None:
    settings = FactsConfig(interval="300s", rootfs=root)
    heartbeat = Heartbeat(settings, 0.0)
    assert heartbeat.sample(3e8, settings, (), GpuProcesses(root))
    assert heartbeat.record("n1", 3e8, ())["hours"] <= 0.2


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/root").symlink_to("/")
    return made


def test_cards_are_held_from_the_look_that_sees_it_until_their_process_ends(proc: Proc) -> None:
    proc.start(100, device="/dev/nvidia0")
    proc.start(101, device="/dev/nvidia3")
    proc.look()
    assert proc.processes.held == {"/dev/nvidia0", "/dev/nvidia3"}
    for _ in range(3):
        proc.look()
    proc.end(100)
    proc.look()
    assert proc.processes.held == {"/dev/nvidia3"}


def test_a_monitor_holds_no_card(proc: Proc) -> None:
    folder = proc.start(100, device="/dev/nvidia0")
    (folder / "stat").write_text((folder / "stat").read_text().replace("(a) b)", "(nvidia-persiste)"))
    proc.look()

    assert proc.processes.held == frozenset()


def test_devices_of_all_cards_together_are_no_card(proc: Proc) -> None:
    proc.start(100, device="/dev/kfd")
    proc.start(101, device="/dev/nvidia-uvm")
    proc.look()

    assert proc.processes.held == frozenset()


@pytest.mark.parametrize("missing", ["1/root", "self/ns/pid"])
def test_whoever_cannot_see_the_processes_of_others_knows_of_no_card_that_it_is_idle(proc: Proc, missing: str) -> None:
    (proc.path / missing).unlink()  # no CAP_SYS_PTRACE, or a container with pids of its own
    proc.start(100, device="/dev/nvidia0")
    proc.look()

    assert proc.processes.held is None
