"""Probes on whole machines (`fixtures/roots`, each with its `expected.json`) and on machines that resist.

`pytest tests/probes/test_probes.py --rewrite-golden` writes what comes now as what is expected; review it as a diff.
"""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from exporter.core.facts.driver_answer import DRIVER_FACTS
from exporter.probes import FACTS, PROBES, Fact, Host, Probe, ProbeResult, gather
from tests.support.matches import not_as_root

ROOTS = Path(__file__).parents[1] / "fixtures" / "roots"
# A home of ours; a firmware of Radeons; what only a daemon that saw the node the day before knows; what a driver says.
NOT_IN_A_ROOT = {"home_cache_writable", "amdgpu_firmware_mes", "gpus_lost"} | (DRIVER_FACTS.keys() - {"gpu_ecc"})
MACHINES = sorted(path.parent.name for path in ROOTS.glob("*/expected.json"))
PATIENT = 30.0  # for tests in which nothing hangs: no busy machine may make them fail


def facts_of(root: Path, *probes: str, home: Path | None = None) -> dict[str, str]:
    """What these probes state of `root`; fails if one of them could not tell everything."""
    gathered = gather(root, home=home, timeout_seconds=PATIENT, probes={name: PROBES[name] for name in probes})
    assert gathered.failed == {}
    return dict(gathered.facts)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_is_what_its_files_say(machine: str, request: pytest.FixtureRequest) -> None:
    expected = ROOTS / machine / "expected.json"
    told = json.loads(json.dumps(asdict(gather(ROOTS / machine, timeout_seconds=PATIENT))))
    if request.config.getoption("--rewrite-golden"):
        expected.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")

    assert json.loads(expected.read_text()) == told


def test_every_fact_of_a_probe_is_stated_by_some_machine() -> None:
    told = {
        name for machine in MACHINES for name in json.loads((ROOTS / machine / "expected.json").read_text())["facts"]
    }

    assert set(FACTS) - told == NOT_IN_A_ROOT
    assert told - set(FACTS) == set()


def test_no_two_probes_state_one_fact() -> None:
    names = [name for probe in PROBES.values() for name in probe.facts]

    assert sorted(names) == sorted(set(names))


def test_an_empty_machine_has_no_facts_and_no_failures(tmp_path: Path) -> None:
    gathered = gather(tmp_path, timeout_seconds=PATIENT)

    assert (gathered.facts, gathered.failed, gathered.gpus) == ({}, {}, ())


def test_this_machine_can_be_asked() -> None:
    gathered = gather(timeout_seconds=PATIENT)

    assert gathered.facts["kernel_release"] == os.uname().release


# Machines that resist


def test_hanging_probes_are_reported_and_do_not_delay_others() -> None:
    released = threading.Event()

    def hangs(host: Host) -> ProbeResult:
        released.wait()
        return ProbeResult(facts={"kernel_release": "too late"})

    hanging = {name: Probe(facts={}, collect=hangs) for name in ("hangs", "hangs too", "hangs as well")}
    asked_at = time.monotonic()
    gathered = gather(ROOTS / "amd", timeout_seconds=0.5, probes={**hanging, **PROBES})
    took_seconds = time.monotonic() - asked_at
    again = gather(ROOTS / "amd", timeout_seconds=PATIENT, probes=hanging)
    released.set()

    assert gathered.failed == dict.fromkeys(hanging, "no answer within 0.5 s")
    assert gathered.facts["kernel_release"] == "5.4.0-173-generic"
    assert took_seconds < len(hanging) * 0.5
    assert again.failed == dict.fromkeys(hanging, "still hangs since an earlier call")


HANGING = """
import threading
from exporter.probes import Probe, gather
gathered = gather(probes={"hangs": Probe(facts={}, collect=lambda host: threading.Event().wait())}, timeout_seconds=0.01)
print(gathered.failed)
"""


def test_a_probe_that_hangs_keeps_no_process_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=PATIENT, check=True)

    assert (ended.stdout, ended.stderr) == ("{'hangs': 'no answer within 0.01 s'}\n", "")


def test_a_machine_can_be_asked_again_at_once() -> None:
    for _ in range(20):
        assert facts_of(ROOTS / "amd", "kernel")["os"] == "ubuntu 20.04"


def test_a_failed_probe_is_reported_in_one_line_and_others_still_count() -> None:
    def fails(host: Host) -> ProbeResult:
        raise ValueError("two\nlines")

    probes = {"fails": Probe(facts={}, collect=fails), "kernel": PROBES["kernel"]}
    gathered = gather(ROOTS / "amd", timeout_seconds=PATIENT, probes=probes)

    assert gathered.failed == {"fails": "ValueError: two lines"}
    assert gathered.facts["os"] == "ubuntu 20.04"


def test_a_fifo_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    write(tmp_path, "etc/os-release", "ID=sles\nVERSION_ID=15.5\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    os.mkfifo(tmp_path / "proc/sys/kernel/osrelease")

    gathered = gather(tmp_path, timeout_seconds=PATIENT)

    assert gathered.facts == {"os": "sles 15.5"}
    assert gathered.failed == {"kernel": "/proc/sys/kernel/osrelease: not a regular file"}


@pytest.mark.parametrize("machine", MACHINES)
def test_garbage_states_nothing(machine: str, tmp_path: Path) -> None:
    shutil.copytree(ROOTS / machine, tmp_path / "root", symlinks=True)
    for path in (tmp_path / "root").rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(b"\x7fELF\0\xff\xfe\x1b[31m\r\n" * 50)

    gathered = gather(tmp_path / "root", timeout_seconds=PATIENT)

    assert gathered.failed == {}
    assert set(gathered.facts) <= TOLD_BY_NAMES
    assert all(value.isprintable() for value in gathered.facts.values())


# What folders and links state by being there, and an empty list by being empty.
TOLD_BY_NAMES = {
    "gpu_services_down",
    *("cgroup_version", "container_runtimes", "cuda_version", "cuda_versions", "driver", "driver_flavor", "gpu_count"),
    *("fabricmanager_running", "gpu_modules", "gpu_retired_pages", "gpu_services", "gpu_virtual_functions", "iommu"),
    *("libcuda_version", "nvidia_mig", "nvidia_mps", "nvidia_persistenced", "nvidia_uvm_hmm"),
    *("oneapi_version", "oneapi_versions", "scheduler", "time_sync"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_full_of_fifos_does_not_block(machine: str, tmp_path: Path) -> None:
    shutil.copytree(ROOTS / machine, tmp_path / "root", symlinks=True)
    for path in (tmp_path / "root").rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.unlink()
            os.mkfifo(path)

    gathered = gather(tmp_path / "root", timeout_seconds=PATIENT)

    assert set(gathered.facts) <= TOLD_BY_NAMES
    assert all("not a regular file" in why or "unable to open" in why for why in gathered.failed.values())


def test_a_file_without_end_is_read_to_a_bound(tmp_path: Path) -> None:
    endless = tmp_path / "proc/meminfo"
    endless.parent.mkdir()
    with open(endless, "wb") as file:
        file.write(b"MemTotal:       527890432 kB\n")
        file.truncate(1 << 40)

    assert facts_of(tmp_path, "board") == {"memory_size": "503 GiB"}


def test_links_out_of_the_machine_state_nothing_of_what_is_outside(tmp_path: Path) -> None:
    write(tmp_path, "outside", "6.6.6-outside\n")
    for paths in (fact.source.split() for probe in PROBES.values() for fact in probe.facts.values() if fact.parse):
        for path in paths:
            link = tmp_path / "root" / path[1:]
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(tmp_path / "outside")

    facts = gather(tmp_path / "root", timeout_seconds=PATIENT).facts
    assert set(facts) <= {"gpu_modules"}  # by the names of folders


def rpm_header(name: str, version: str, release: str) -> bytes:
    texts = [(1000, name), (1001, version), (1002, release)]
    index, store = b"", b""
    for tag, text in texts:
        index += struct.pack(">IIII", tag, 6, len(store), 1)
        store += text.encode() + b"\0"
    return struct.pack(">II", len(texts), len(store)) + index + store


def test_packages_of_rpm_are_read_from_its_database(tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/rpm"
    folder.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(folder / "rpmdb.sqlite")) as database, database:
        database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
        database.execute("CREATE TABLE Name (key TEXT NOT NULL, hnum INTEGER NOT NULL, idx INTEGER NOT NULL)")
        rows = [
            ("rccl", "2.20.5.60203", "113.el9"),
            ("bash", "5.1.8", "9.el9"),
            ("nvidia-fabricmanager", "550.90.07", "1"),
        ]
        for number, row in enumerate(rows):
            database.execute("INSERT INTO Packages VALUES (?, ?)", (number, rpm_header(*row)))
            database.execute("INSERT INTO Name VALUES (?, ?, 0)", (row[0], number))
    before = sorted(folder.iterdir())

    assert facts_of(tmp_path, "packages") == {
        "rccl_version": "2.20.5",
        "rocm_packages": "6.2.3",
        "fabricmanager_version": "550.90.07",
    }
    assert before == sorted(folder.iterdir())


def test_an_invalid_rpm_database_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "var/lib/rpm/rpmdb.sqlite", "not a database, whatever its name says" * 100)

    gathered = gather(tmp_path, timeout_seconds=PATIENT)

    assert gathered.facts == {}
    assert "file is not a database" in gathered.failed["packages"]


def test_a_fact_that_is_a_file_needs_no_code(tmp_path: Path) -> None:
    write(tmp_path, "second", "value\n")
    probe = Probe(facts={"some": Fact("a fact", "/first /second", str.strip)})

    assert gather(tmp_path, timeout_seconds=PATIENT, probes={"own": probe}).facts == {"some": "value"}


def test_circular_links_are_reported(tmp_path: Path) -> None:
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/rocm").symlink_to("/opt/rocm")

    gathered = gather(tmp_path, timeout_seconds=PATIENT, probes={"rocm": PROBES["rocm"]})

    assert gathered.failed == {"rocm": "/opt/rocm/.info/version: too many links"}


def test_links_do_not_lead_out_of_the_machine(tmp_path: Path) -> None:
    write(tmp_path, "outside", "6.6.6\n")
    write(tmp_path, "root/opt/rocm-6.2.3/.info/version", "6.2.3-124\n")
    (tmp_path / "root/opt/rocm").symlink_to("../../../../opt/rocm-6.2.3")
    (tmp_path / "root/opt/rocm-9").mkdir()
    (tmp_path / "root/opt/rocm-9/.info").mkdir()
    (tmp_path / "root/opt/rocm-9/.info/version").symlink_to(tmp_path / "outside")

    assert facts_of(tmp_path / "root", "rocm") == {"rocm_version": "6.2.3", "rocm_versions": "6.2.3"}


def test_a_file_that_may_not_be_read_costs_its_own_fact_only(open_path: Path) -> None:
    write(open_path, "proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    write(open_path, "sys/class/dmi/id/bios_version", "1.5\n")
    (open_path / "sys/class/dmi/id/bios_version").chmod(0)

    with not_as_root():
        gathered = gather(open_path, timeout_seconds=PATIENT)

    assert gathered.facts == {"kernel_release": "6.8.0-45-generic"}
    assert gathered.failed == {"board": "/sys/class/dmi/id/bios_version: Permission denied"}


# The home of jobs

LOCAL = "28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
NFS = "97 28 0:51 / /nfs/home rw,relatime shared:52 - nfs4 nfs01:/home rw,vers=4.2\n"
READ_ONLY_NFS = "97 28 0:51 / /nfs/home ro,relatime shared:52 - nfs4 nfs01:/home rw,vers=4.2\n"


def machine_with_home(root: Path, mounts: str) -> Path:
    write(root, "proc/1/mountinfo", mounts)
    (root / "nfs/home/alice").mkdir(parents=True)
    (root / "home").symlink_to("/nfs/home")
    return root / "nfs/home/alice"


def test_a_home_behind_a_link_is_on_the_file_system_that_the_link_leads_to(tmp_path: Path) -> None:
    machine_with_home(tmp_path, LOCAL + NFS)

    assert facts_of(tmp_path, "home", home=Path("/home/alice")) == {
        "home_fs_type": "nfs4",
        "home_mount_options": "vers=4.2",
    }


def test_the_home_of_a_job_is_known_from_its_environment(tmp_path: Path) -> None:
    machine_with_home(tmp_path, LOCAL + NFS)
    probes = {"home": PROBES["home"]}

    def fs_type(home: str) -> str | None:
        gathered = gather(tmp_path, environ={"HOME": home}, timeout_seconds=PATIENT, probes=probes)
        return gathered.facts.get("home_fs_type")

    assert fs_type("/nfs/home/alice/") == "nfs4"
    assert fs_type("/root") is None


def test_a_home_that_is_mounted_only_when_used_is_not_known_before(tmp_path: Path) -> None:
    write(tmp_path, "proc/1/mountinfo", LOCAL + "60 28 0:46 / /home rw shared:30 - autofs auto.home rw,fd=7\n")

    assert facts_of(tmp_path, "home", home=Path("/home/alice")) == {}


@pytest.mark.parametrize("existing", [[], [".cache"], [".cache", ".config"]])
def test_a_home_of_ours_is_writable_if_a_file_can_be_written_and_nothing_is_left_behind(
    tmp_path: Path, existing: list[str]
) -> None:
    home = machine_with_home(tmp_path, LOCAL + NFS)
    for name in existing:
        (home / name).mkdir()
    before = sorted(tmp_path.rglob("*"))

    assert facts_of(tmp_path, "home_cache", home=Path("/home/alice")) == {"home_cache_writable": "true"}
    assert before == sorted(tmp_path.rglob("*"))


def test_a_cache_that_is_a_file_or_leads_nowhere_is_not_writable(tmp_path: Path) -> None:
    home = machine_with_home(tmp_path, LOCAL + NFS)
    (home / ".config").write_text("not a folder")

    assert facts_of(tmp_path, "home_cache", home=Path("/home/alice")) == {"home_cache_writable": "false"}

    (home / ".config").unlink()
    (home / ".config").symlink_to("/scratch/alice/config")

    assert facts_of(tmp_path, "home_cache", home=Path("/home/alice")) == {"home_cache_writable": "false"}


def test_a_cache_that_is_a_link_to_scratch_is_asked_there(tmp_path: Path) -> None:
    home = machine_with_home(tmp_path, LOCAL + NFS)
    (tmp_path / "scratch/alice").mkdir(parents=True)
    (home / ".cache").symlink_to("/scratch/alice")

    assert facts_of(tmp_path, "home_cache", home=Path("/home/alice")) == {"home_cache_writable": "true"}


@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_home_that_takes_no_entries_is_not_writable(open_path: Path, mode: int) -> None:
    home = machine_with_home(open_path, LOCAL + NFS)
    if os.geteuid() == 0:
        os.chown(home, 65534, 65534)
    home.chmod(mode)

    with not_as_root():
        assert facts_of(open_path, "home_cache", home=Path("/home/alice")) == {"home_cache_writable": "false"}


def test_a_home_on_a_read_only_mount_is_not_writable_whoevers_it_is(tmp_path: Path) -> None:
    machine_with_home(tmp_path, LOCAL + READ_ONLY_NFS)

    assert facts_of(tmp_path, "home_cache", home=Path("/nfs/home")) == {"home_cache_writable": "false"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_home_is_not_written_to(tmp_path: Path) -> None:
    home = machine_with_home(tmp_path, LOCAL + NFS)
    os.chown(home, 65534, 65534)

    assert facts_of(tmp_path, "home_cache", home=Path("/home/alice")) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_real_read_only_file_system_is_not_writable(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "gpufault-test", str(tmp_path)]
    mounted = subprocess.run(mount, check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(mounted.stderr.decode())
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            (tmp_path / "file").touch()
        assert facts_of(Path("/"), "home_cache", home=tmp_path) == {"home_cache_writable": "false"}
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def gpu_operator_node(root: Path) -> None:
    """A node whose NVIDIA driver runs in a container, seen from a container that has only some of the node's folders."""
    write(
        root,
        "proc/driver/nvidia/gpus/0000:c1:00.0/information",
        "Model: \t\t NVIDIA H100\nBus Location: \t 0000:c1:00.0\n",
    )
    (root / "proc/driver/nvidia-nvswitch").mkdir()
    (root / "sys/fs/cgroup/system.slice/kubelet.service").mkdir(parents=True)


def test_what_a_container_cannot_see_of_the_node_is_not_stated(tmp_path: Path) -> None:
    gpu_operator_node(tmp_path)
    assert "nvidia_mps" not in (facts := facts_of(tmp_path, "nvidia"))
    assert "nvidia_persistenced" not in facts
    (tmp_path / "run/systemd").mkdir(parents=True)  # the node's /run is mounted
    facts = facts_of(tmp_path, "nvidia", "services")
    assert (facts["nvidia_mps"], facts["nvidia_persistenced"], facts["fabricmanager_running"]) == ("false",) * 3


def test_of_a_driver_in_a_container_its_own_files_count(tmp_path: Path) -> None:
    gpu_operator_node(tmp_path)
    driver = "run/nvidia/driver"
    write(tmp_path, f"{driver}/usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07", "")
    write(tmp_path, f"{driver}/run/nvidia-persistenced/socket", "")
    facts = facts_of(tmp_path, "nvidia", "services")
    assert (facts["libcuda_version"], facts["nvidia_persistenced"]) == ("550.90.07", "true")
    assert "fabricmanager_running" not in facts  # it may run in that container
    (tmp_path / "sys/fs/cgroup/system.slice/nvidia-fabricmanager.service").mkdir()
    assert facts_of(tmp_path, "services")["fabricmanager_running"] == "true"
