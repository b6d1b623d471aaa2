"""A file system below a watched folder hangs: the real daemon, over a real FUSE mount whose calls can be kept waiting."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.e2e.conftest import Kernel, Node, eventually, gpufault
from tests.support.fuse_server import EVERY_CALL, FuseServer, needs_fuse

pytestmark = [needs_fuse, pytest.mark.heavy]

JOBS = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
KERNEL = JOBS.replace("job", "kernel")
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."


@pytest.fixture
def node(make_node: Callable[..., Node], mount: FuseServer, kernel: Kernel, tmp_path: Path) -> Node:
    """Its logs are on the mount and on a local disk, in one source."""
    paths = [f"{mount.point}/*.log", f"{tmp_path}/jobs/*.log"]
    files = {"kind": "files", "paths": paths, "start": "beginning", "allow_roots": [str(mount.point)]}
    return make_node([files, {"kind": "kmsg", "path": str(kernel.path)}])


def write(path: Path, *numbers: int) -> None:
    with path.open("a") as log:
        log.writelines(f"e2e crash seq={number} of {path.stem}\n" for number in numbers)


def ready(node: Node) -> tuple[int, str]:
    try:
        return 200, node.get("/-/ready")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def node_check(node: Node) -> tuple[int, str]:
    done = subprocess.run(
        [gpufault(), "node-check", "--url", f"http://{node.address}", "--timeout", "20"],
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


def wait_for(node: Node, series: str, value: float) -> None:
    eventually(lambda: node.value(series) == value)


def blind(node: Node) -> str:
    """What `/api/v1/node-check` says is not seen."""
    return " ".join(json.loads(node.get("/api/v1/node-check"))["blind"])


def test_what_hangs_hangs_alone(node: Node, mount: FuseServer, kernel: Kernel) -> None:
    """Whichever call hangs: what is on the mount is read later, and all the rest at once."""
    behind, local = mount.folder, node.logs
    write(behind / "far.log", *range(10))
    (behind / "link.log").symlink_to("target")
    write(behind / "target", 1)
    write(local / "near.log", *range(10))
    node.start()
    lines = 21
    for number, calls in enumerate([*({call} for call in sorted(EVERY_CALL)), EVERY_CALL]):
        name = "_".join(sorted(calls))[:40]
        print("hangs:", name)
        wait_for(node, JOBS, lines)
        wait_for(node, 'gpufault_source_up{source="files"}', 1)
        eventually(lambda: ready(node)[0] == 200)

        mount.hang(*calls)
        write(behind / "far.log", number, number)
        write(behind / f"new_{name}.log", 1)
        (behind / f"link_{name}.log").symlink_to("target")
        (behind / f"program_{name}.log").write_bytes(b"\x7fELF")  # closed when its first bytes are seen
        eventually(lambda: f"{mount.point} has not answered since" in blind(node))
        wait_for(node, 'gpufault_source_up{source="files"}', 0)
        eventually(lambda: node.value('gpufault_source_stalled_seconds{source="files"}'))
        code, reasons = ready(node)
        assert code == 503, calls
        assert str(mount.point) in reasons, calls

        kernel.say(f"e2e crash seq={number} of kernel")
        wait_for(node, KERNEL, number + 1)
        write(local / "near.log", number)
        write(local / f"new_{name}.log", 1)
        eventually(lambda least=lines + 2: (node.value(JOBS) or 0) >= least)
        if calls == EVERY_CALL:
            assert node_check(node)[0] == 3
            kernel.say(XID)
            eventually(lambda: json.loads(node.get("/api/v1/node-check"))["faults"])
            assert node_check(node)[0] == 1

        mount.go_on()
        lines += 5
    wait_for(node, JOBS, lines)
    eventually(lambda: ready(node)[0] == 200)
    assert 'reason="etimedout"' not in node.get("/metrics")


@contextmanager
def overlay(mount: FuseServer, tmp_path: Path) -> Iterator[Path]:
    """A file system that counts as local, on top of one that hangs: a disk that is dead."""
    point, empty = tmp_path / "overlay", tmp_path / "empty"
    point.mkdir()
    empty.mkdir()
    subprocess.run(["mount", "-t", "overlay", "none", "-o", f"lowerdir={mount.point}:{empty}", str(point)], check=True)
    try:
        yield point
    finally:
        mount.go_on()
        subprocess.run(["umount", "-l", str(point)], check=True)


def watching(make_node: Callable[..., Node], kernel: Kernel, *paths: str) -> Node:
    """A node that follows these logs from their beginnings, and the kernel's log."""
    files = {"kind": "files", "paths": list(paths), "start": "beginning"}
    return make_node([files, {"kind": "kmsg", "path": str(kernel.path)}])


def test_a_disk_that_hangs_leaves_the_kernels_log_alone(
    make_node: Callable[..., Node], mount: FuseServer, kernel: Kernel, tmp_path: Path
) -> None:
    write(mount.folder / "far.log", *range(10))
    with overlay(mount, tmp_path) as point:
        node = watching(make_node, kernel, f"{point}/*.log", f"{tmp_path}/jobs/*.log")
        write(node.logs / "near.log", *range(10))
        node.start()
        wait_for(node, JOBS, 20)
        mount.hang(*EVERY_CALL)
        eventually(lambda: mount.waiting)
        code, text = eventually(lambda: seen if (seen := node_check(node))[0] else None)
        assert code == 3
        assert "has not answered since" in text
        assert ready(node)[0] == 503
        kernel.say(XID)
        eventually(lambda: json.loads(node.get("/api/v1/node-check"))["faults"])
        assert node_check(node)[0] == 1
        write(mount.folder / "new.log", 1)
        write(node.logs / "near.log", 10)
        mount.go_on()
        wait_for(node, JOBS, 22)
        eventually(lambda: ready(node)[0] == 200)
        assert node.stop() == 0


@pytest.mark.parametrize("where", ["mount", "disk"])
def test_it_stops_while_a_file_system_hangs_and_the_next_start_goes_on(
    make_node: Callable[..., Node], mount: FuseServer, kernel: Kernel, tmp_path: Path, where: str
) -> None:
    write(mount.folder / "far.log", *range(10))
    with overlay(mount, tmp_path) if where == "disk" else nullcontext(mount.point) as point:
        node = watching(make_node, kernel, f"{point}/*.log", f"{tmp_path}/jobs/*.log")
        write(node.logs / "near.log", *range(5))
        node.start()
        wait_for(node, JOBS, 15)
        mount.hang(*EVERY_CALL)
        eventually(lambda: mount.waiting)
        kernel.say("e2e crash seq=1 of kernel")
        wait_for(node, KERNEL, 1)
        old = node.process
        assert old is not None
        old.send_signal(signal.SIGTERM)
        eventually(lambda: "event=stopped" in node.log.read_text())  # a thread in the kernel may keep the process
        write(node.logs / "near.log", 5, 6)
        node.start()
        eventually(lambda: node.value(JOBS) is not None)
        eventually(lambda: ready(node)[0] == 503)
        kernel.say("e2e crash seq=2 of kernel")
        wait_for(node, KERNEL, 2)
        mount.go_on()
        write(mount.folder / "far.log", 10)
        wait_for(node, JOBS, 18)
        eventually(lambda: ready(node)[0] == 200)
        assert old.wait(timeout=60) == 0
        assert node.stop() == 0


def test_a_users_link_to_a_mount_that_hangs_keeps_only_her_log_unread(
    make_node: Callable[..., Node], mount: FuseServer, kernel: Kernel, tmp_path: Path
) -> None:
    write(mount.folder / "far.log", *range(3))
    node = watching(make_node, kernel, f"{tmp_path}/jobs/*/*.log")
    for user in ("alice", "mallory"):
        (node.logs / user).mkdir()
    write(node.logs / "alice" / "near.log", 1)
    node.start()
    wait_for(node, JOBS, 1)
    mount.hang(*EVERY_CALL)
    (node.logs / "mallory" / "a.log").symlink_to(mount.point / "far.log")
    (node.logs / "eve").symlink_to(mount.point)
    eventually(lambda: mount.waiting)
    for number in range(2, 5):
        write(node.logs / "alice" / "near.log", number)
        wait_for(node, JOBS, number)
    write(node.logs / "alice" / "later.log", 1)
    wait_for(node, JOBS, 5)


def test_facts_that_hang_hang_alone(
    make_node: Callable[..., Node], mount: FuseServer, kernel: Kernel, tmp_path: Path
) -> None:
    """A root of the host that does not answer, and a command that no signal ends."""
    host = {"proc/loadavg": "0 0 0 1/1 1", "proc/2/comm": "kthreadd\n", "etc/os-release": 'ID="x"\n', "x": "y\n"}
    for path, text in host.items():
        (mount.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (mount.folder / path).write_text(text)
    facts = {"rootfs": str(mount.point), "interval": "10s", "commands": {"mine": ["cat", f"{mount.point}/x"]}}
    files = {"kind": "files", "paths": [f"{tmp_path}/jobs/*.log"], "start": "beginning"}
    node = make_node([files, {"kind": "kmsg", "path": str(kernel.path)}], facts=facts)
    node.start()
    mount.hang(*EVERY_CALL)
    eventually(lambda: len(mount.waiting) > 1)
    kernel.say(XID)
    write(node.logs / "near.log", 1)
    eventually(lambda: json.loads(node.get("/api/v1/node-check"))["faults"])
    wait_for(node, JOBS, 1)
    eventually(lambda: node.value('gpufault_facts_probe_failed{probe="processes"}'))
    eventually(lambda: node.value('gpufault_facts_probe_failed{probe="command mine"}'))
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    eventually(lambda: "event=stopped" in node.log.read_text())
    mount.go_on()
    assert node.process.wait(timeout=60) == 0
