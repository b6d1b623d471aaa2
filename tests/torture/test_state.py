"""What befalls the state: kills at the very first start and between two writes, quotas, other file systems, power loss."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Node, eventually
from tests.support.programs import needs, needs_root

from .conftest import Torture
from .test_rotation import rotate

Begin = Callable[..., Torture]
needs_strace = needs("strace")


@pytest.fixture
def torture(make_node: Callable[..., Node], tmp_path: Path) -> Torture:
    """A node that follows `*.log` in its folder, not yet started."""
    return Torture(make_node([{"kind": "files", "paths": [str(tmp_path / "jobs" / "*.log")]}]))


def all_in_journal(torture: Torture) -> bool:
    """Whether no incident is open, and each that is counted is in the journal under an id of its own."""
    values: Counter[str] = Counter()
    for line in torture.node.get("/metrics").splitlines():
        if "torture_" in line:
            values[line.split("{")[0]] += int(float(line.rsplit(" ", 1)[1]))
    told = values["gpufault_incidents_total"] + values["gpufault_cascades_total"]
    return not values["gpufault_incidents_open"] and len({one["id"] for one in torture.node.records()}) == told


def test_killed_at_any_moment_of_the_very_first_start(make_node: Callable[..., Node], tmp_path: Path) -> None:
    logs = tmp_path / "jobs" / "*.log"
    torture = Torture(make_node([{"kind": "files", "paths": [str(logs)], "start": "beginning"}]))
    log = torture.write(torture.logs / "job.log", 50)
    dice = random.Random(3)
    for _ in range(12):
        process = torture.node.spawn()
        time.sleep(0.3 + dice.random())  # no wait for anything: the moment is what the test is about
        process.kill()
        process.wait()
        torture.write(log, 3)
    torture.start().exact()


@needs_root
@needs_strace
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_killed_between_the_state_and_the_journal(torture: Torture, call: str) -> None:
    journal = torture.node.folder / "state/journal/journal-000001.jsonl"
    torture.start()
    log = torture.write(torture.logs / "job.log", 30)
    torture.all_counted()
    for when in range(1, 4):
        torture.node.kill()
        inject = ("-P", str(journal), "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={when}")
        torture.node.wrap = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", *inject)
        process = torture.node.spawn()

        def is_killed(process: subprocess.Popen[bytes] = process) -> bool:
            torture.write(log, 3)
            time.sleep(2.5)  # its incidents settle, and are written
            return process.poll() is not None

        eventually(is_killed, 60.0)
        torture.node.wrap = ()
        torture.start().all_counted()
    torture.exact()
    eventually(lambda: all_in_journal(torture))


def test_two_daemons_take_turns_on_one_state(make_node: Callable[..., Node], tmp_path: Path) -> None:
    torture = Torture(make_node([{"kind": "files", "paths": [str(tmp_path / "jobs" / "a*.log")]}]))
    a, b = torture.logs / "a.log", torture.logs / "b.log"
    text = torture.node.config.read_text()
    configs = [text, text.replace("a*.log", "b*.log").replace('"e2e"', '"other"', 1)]
    torture.start()
    for log in (a, b):
        torture.write(log, 10)
    eventually(lambda: sum(torture.counted()) == 10 or None)
    for number in range(1, 5):
        torture.node.kill()
        for log in (a, b):
            torture.write(log, 10)
        torture.node.config.write_text(configs[number % 2])
        torture.start()
        time.sleep(1.0)
    torture.node.kill()
    torture.node.config.write_text(
        json.dumps({**json.loads(text), "sources": [{"kind": "files", "paths": [str(torture.logs / "*.log")]}]})
    )
    torture.start().exact()


@needs_root
@needs_strace
@pytest.mark.parametrize(
    "fault",
    [
        "pwrite64:error=EDQUOT:when=3..60",
        "pwrite64:error=ENOSPC:when=5..9",
        "fdatasync:error=EIO:when=2..6",
        "pwrite64:error=EIO:when=4+3",
    ],
)
def test_the_state_cannot_be_written_for_a_while(torture: Torture, fault: str) -> None:
    call = fault.split(":")[0]
    wal = torture.node.folder / "state/state.sqlite-wal"
    torture.start()
    log = torture.write(torture.logs / "job.log", 30)
    torture.all_counted()
    torture.node.stop()
    torture.node.wrap = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", "-P", str(wal))
    torture.node.wrap += ("-e", f"trace={call}", "-e", f"inject={fault}")
    torture.start()
    for number in range(6):
        torture.write(log, 20)
        if number == 3:
            rotate(log)
        time.sleep(0.5)
    if "+" not in fault:
        torture.all_counted()
    torture.node.wrap = ()
    torture.node.kill()
    torture.start().exact()


@pytest.mark.parametrize("tail", ["cut off", "zeroed", "of another file"])
def test_power_fails_amid_a_commit(torture: Torture, tail: str) -> None:
    """What was not synced is anything at all; what was lies before it. A disk that lies may lose commits, but whole."""
    torture.start()
    log = torture.write(torture.logs / "job.log", 30)
    torture.all_counted()
    dice = random.Random(9)
    state = torture.node.folder / "state"
    for _ in range(6):
        for _ in range(4):
            torture.write(log, 5)
            torture.all_counted()
        torture.node.kill()
        wal = state / "state.sqlite-wal"
        size = wal.stat().st_size
        at = dice.randrange(size // 2, size)
        with wal.open("r+b") as file:
            if tail == "cut off":
                file.truncate(at)
            else:
                file.seek(at)
                file.write(bytes(size - at) if tail == "zeroed" else os.urandom(size - at))
        journal = max((state / "journal").glob("*.jsonl"))
        with journal.open("r+b") as file:
            file.seek(-min(100, journal.stat().st_size), os.SEEK_END)
            file.write(bytes(100))
        torture.write(log, 10)
        torture.start().all_counted()
    torture.exact()


class Disk:
    """An ext4 of its own, whose power can fail: what was not synced is gone (EXT4_IOC_SHUTDOWN without a flush)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self._image = folder / "image"
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", self._image], check=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.folder], check=True, capture_output=True)

    def fail(self) -> None:
        folder = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(folder, 0x8004587D, (2).to_bytes(4, "little"))
        os.close(folder)

    def unmount(self, *how: str) -> None:
        subprocess.run(["umount", *how, self.folder], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        one = Disk(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of one's own: {error}")
    yield one
    one.unmount("--lazy")


@needs_root
@pytest.mark.skipif("CI" in os.environ, reason="the kernel tells of the broken disk, and tests beside this one hear it")
def test_power_fails_under_the_disk(make_node: Callable[..., Node], tmp_path: Path, disk: Disk) -> None:
    """What was shown stays; what is left of the log counts once, and so does what is written after that."""
    (tmp_path / "state").symlink_to(disk.folder / "state")
    for name in ("state", "jobs"):
        (disk.folder / name).mkdir()
    torture = Torture(make_node([{"kind": "files", "paths": [f"{disk.folder}/jobs/*.log"]}]))
    torture.logs = disk.folder / "jobs"
    torture.start()
    log = torture.logs / "job.log"
    for _ in range(2):
        with torture.write(log, 60).open("rb") as synced:
            os.fsync(synced.fileno())
        size = log.stat().st_size
        torture.write(log, 40)
        torture.all_counted()
        disk.fail()
        torture.node.kill()
        disk.unmount()
        disk.mount()
        assert log.stat().st_size == size, "the disk lost nothing"
        torture.start()
        assert torture.counted() == torture.written
    torture.exact()
