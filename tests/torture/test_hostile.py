"""File systems, tools and people that a tailer meets once a year: mounts, copy-up, archivers, deleted state, new settings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import eventually
from tests.support.programs import needs, needs_root

from .conftest import Torture, both_watchers
from .test_rotation import rotate

Followed = tuple[Torture, Path]
Begin = Callable[..., Torture]
Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mount something below the node's folder."""
    mounted: list[Path] = []

    def mount(path: Path, *arguments: str | Path) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", *arguments, path], check=True)
        mounted.append(path)
        return path

    yield mount
    for path in reversed(mounted):
        subprocess.run(["umount", "--lazy", path], check=False)


TMPFS = ("-t", "tmpfs", "tmpfs")


# -- mounts


@needs_root
def test_the_same_inode_numbers_on_two_mounts(begin: Begin, mount: Mount) -> None:
    torture = begin("*/*.log")
    logs = [mount(torture.logs / name, *TMPFS) / "job.log" for name in ("a", "b")]
    torture.start()
    for log in logs:
        torture.write(log, 30)
    assert logs[0].stat().st_ino == logs[1].stat().st_ino
    torture.all_counted()
    for _ in range(3):
        for log in logs:
            torture.write(log, 20)
            rotate(log)
            torture.write(log, 7)
    torture.node.kill()
    for log in logs:
        torture.write(log, 5)
    torture.start().exact("a/last.log")


@needs_root
def test_a_mount_is_exchanged_for_another_with_the_same_inode_numbers(begin: Begin, mount: Mount) -> None:
    torture = begin("*/*.log").start()
    for _ in range(3):
        disk = mount(torture.logs / "disk", *TMPFS)
        log = torture.write(disk / "job.log", 60)
        torture.all_counted()
        torture.write(log, 10)
        torture.all_counted()
        subprocess.run(["umount", "--lazy", disk], check=True)
    torture.exact("disk/last.log")


@needs_root
def test_a_file_is_copied_up(begin: Begin, mount: Mount) -> None:
    """On an overlay, as in a container: what is open is the image's file, and the first write makes another."""
    torture = begin("*.log", start="beginning")
    lower, upper, work = (mount(torture.node.folder / "overlay", *TMPFS) / name for name in ("lower", "upper", "work"))
    for folder in (lower, upper, work):
        folder.mkdir()
    torture.write(lower / "job.log", 50)
    torture.write(lower / "tiny.log", 1)
    mount(torture.logs, "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}")
    torture.start().all_counted()
    for name in ("job.log", "tiny.log"):
        for _ in range(3):
            torture.write(torture.logs / name, 20)
            torture.all_counted()
    torture.exact()


@needs_root
def test_a_folder_is_seen_through_a_bind_mount_too(begin: Begin, mount: Mount) -> None:
    torture = begin("a/*.log", "b/*.log")
    (torture.logs / "a").mkdir()
    mount(torture.logs / "b", "--bind", torture.logs / "a")
    torture.start()
    for name in ("a", "b", "a"):
        torture.write(torture.logs / name / "job.log", 30)
        torture.all_counted()
    rotate(torture.logs / "b/job.log")
    torture.write(torture.logs / "a/job.log", 30)
    torture.exact("b/last.log")


# -- tools


def test_an_unnamed_file_gets_a_name(torture: Torture) -> None:
    for number in range(5):
        file = os.open(torture.logs, os.O_TMPFILE | os.O_RDWR)
        try:
            os.write(file, torture.lines(30))
            os.link(f"/proc/self/fd/{file}", torture.logs / f"job-{number}.log", src_dir_fd=file)  # follows
            os.write(file, torture.lines(10))
        finally:
            os.close(file)
    torture.exact()


def test_rotated_by_a_link_and_a_removal(followed: Followed) -> None:
    torture, log = followed
    for number in range(3):
        torture.write(log, 20)
        os.link(log, f"{log}.{number}")
        log.unlink()
        torture.write(log, 20)
        torture.write(Path(f"{log}.{number}"), 5)
    torture.exact()


def test_a_log_becomes_a_link_to_where_it_was_moved(followed: Followed) -> None:
    torture, log = followed
    data = torture.logs / "data"
    data.mkdir()
    with log.open("ab", buffering=0) as writer:
        torture.write(log, 10)
        log.rename(data / "job.out")
        log.symlink_to(data / "job.out")
        writer.write(torture.lines(20))
    torture.write(log, 20)
    torture.exact()


@needs("gzip")
@pytest.mark.parametrize("down", [False, True])
def test_gzip_is_slow_and_killed_and_run_again(followed: Followed, *, down: bool) -> None:
    torture, log = followed
    with log.open("ab") as writer:
        writer.write(b"".join(os.urandom(40).hex().encode() + b"\n" for _ in range(250_000)) + torture.lines(20))
    if down:
        torture.node.kill()
    rotate(log)
    torture.write(log, 20)
    old = f"{log}.1"
    with subprocess.Popen(["gzip", "--best", old]) as packing:
        eventually(lambda: os.path.exists(f"{old}.gz") and os.stat(f"{old}.gz").st_size > 100_000)
        packing.send_signal(signal.SIGSTOP)
        if down:
            torture.start()
        torture.write(log, 20)
        torture.all_counted()
        packing.kill()
    torture.write(log, 20)
    torture.all_counted()
    subprocess.run(["gzip", "--force", old], check=True)
    torture.exact()


def test_all_logs_of_a_node_are_rotated_at_once(torture: Torture) -> None:
    logs = [torture.write(torture.logs / f"rank-{number}.log", 2) for number in range(300)]
    torture.all_counted()
    for _ in range(2):
        for log in logs:
            torture.write(log, 1)
            rotate(log, keep=2)
        for log in logs:
            torture.write(log, 1)
    torture.exact()


def test_writers_of_five_generations_of_a_log(followed: Followed) -> None:
    torture, log = followed
    writers = []
    for _ in range(5):
        writers.append(log.open("ab", buffering=0))
        rotate(log)
    for _ in range(3):
        for writer in writers:
            writer.write(torture.lines(3))
        torture.write(log, 3)
        torture.all_counted()
    for writer in writers:
        writer.close()
    torture.exact()


@both_watchers
def test_made_and_renamed_where_nobody_can_have_looked(begin: Begin, watch: str) -> None:
    """Of a path that stays empty, only inotify tells."""
    torture = begin().start()
    log = torture.logs / "job.log"
    for number in range(3):
        torture.write(log, 20)
        log.rename(f"{log}.{number + 1}")
    if watch == "poll":
        log.touch()
    torture.exact()


def test_a_carriage_return_and_its_newline_are_parted_by_a_crash(followed: Followed) -> None:
    torture, log = followed
    for _ in range(3):
        with log.open("ab") as writer:
            writer.write(torture.line(ending="\r"))
        torture.all_counted()
        torture.node.kill()
        with log.open("ab") as writer:
            writer.write(b"\n")
        torture.node.start()
    torture.exact()


# -- the node


@pytest.mark.parametrize("what", ["state", "state/state.sqlite", "state/state.sqlite-wal"])
def test_the_state_is_deleted_in_use(followed: Followed, what: str) -> None:
    torture, log = followed
    gone = torture.node.folder / what
    for _ in range(2):
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        torture.write(log, 20)
        torture.all_counted()
        torture.node.kill()
        torture.write(log, 20)
        torture.start().all_counted()
    torture.exact()


def test_the_state_of_an_idle_daemon_is_deleted(followed: Followed) -> None:
    torture, log = followed
    state = torture.node.folder / "state/state.sqlite"
    shutil.rmtree(state.parent)
    eventually(lambda: state.exists() or None)
    torture.node.kill()
    torture.write(log, 20)
    torture.start().exact()


@needs_root
def test_killed_while_its_disk_is_full(begin: Begin, mount: Mount) -> None:
    torture = begin()
    disk = mount(torture.node.folder / "state", "-t", "tmpfs", "-o", "size=8m", "tmpfs")
    log = torture.start().write(torture.logs / "job.log", 50)
    torture.all_counted()
    for _ in range(2):
        with (disk / "ballast").open("wb", buffering=0) as ballast:
            while ballast.tell() < 8 << 20:
                try:
                    ballast.write(bytes(4096))
                except OSError:
                    break
        torture.write(log, 3000)
        eventually(lambda: torture.node.value("gpufault_state_up") == 0.0 or None)
        torture.node.kill()
        rotate(log)
        torture.write(log, 10)
        (disk / "ballast").unlink()
        torture.start().all_counted()
    torture.exact()


@needs_root
@needs("unshare")
def test_no_inotify_instance_is_left(begin: Begin) -> None:
    torture = begin()
    limit = 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"'
    torture.node.wrap = ("unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh")
    torture.start()
    log = torture.write(torture.logs / "job.log", 50)
    torture.all_counted()
    rotate(log)
    torture.write(log, 50)
    torture.exact()


def test_more_happens_than_inotify_can_tell(followed: Followed) -> None:
    torture, log = followed
    other = torture.write(torture.logs / "other.log", 1)
    torture.all_counted()
    process = torture.node.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    with log.open("ab", buffering=0) as one, other.open("ab", buffering=0) as two:
        for _ in range(9000):  # the kernel keeps 16,384 events
            one.write(b"a step\n")
            two.write(b"a step\n")
    torture.write(torture.logs / "new.log", 50)
    rotate(log)
    torture.write(log, 50)
    process.send_signal(signal.SIGCONT)
    torture.exact()


def test_fifty_thousand_entries_in_one_folder(torture: Torture) -> None:
    for number in range(50_000):
        (torture.logs / f"core.{number}").touch()
    logs = [torture.write(torture.logs / f"job-{number}.log", 5) for number in range(20)]
    torture.all_counted()
    for log in logs:
        rotate(log)
        torture.write(log, 5)
    torture.exact()


def test_times_to_come(followed: Followed) -> None:
    torture, log = followed
    for number in range(4):
        torture.write(log, 20)
        os.utime(log, (4e9 - number, 4e9 - number))
        rotate(log)
        torture.write(log, 70)
    torture.exact()


@needs_root
@needs("setpriv")
def test_a_folder_may_be_listed_now_and_then(begin: Begin) -> None:
    torture = begin("**/*.log")
    folder = torture.logs / "run"
    folder.mkdir()
    torture.node.wrap = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    torture.start()
    log = torture.write(folder / "job.log", 20)
    torture.all_counted()
    for _ in range(3):
        folder.chmod(0)
        torture.write(log, 20)
        rotate(log)
        torture.write(log, 20)
        torture.write(torture.logs / "other.log", 1)
        eventually(lambda: sum(torture.counted()) >= sum(torture.written) - 40 or None)
        folder.chmod(0o755)
        torture.all_counted()
    torture.exact()


# -- its settings


def test_globs_come_and_go(begin: Begin) -> None:
    torture = begin("a/*.log")
    folders = [torture.logs / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    torture.start()
    a, b = (folder / "job.log" for folder in folders)
    torture.write(a, 20)
    torture.all_counted()
    for globs in (["a/*.log", "b/*.log"], ["b/*.log", "a/*.log"], ["*/*.log"], ["a/*.log", "**/*.log"]):
        settings = json.loads(torture.node.config.read_text())
        settings["sources"][0]["paths"] = [str(torture.logs / glob) for glob in globs]
        torture.node.config.write_text(json.dumps(settings))
        torture.write(a, 10)
        if len(globs) == 2:
            torture.node.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        else:
            torture.node.kill()
            torture.node.start()
        torture.write(a, 10)
        torture.write(b, 10)
        torture.all_counted()
    torture.exact("a/last.log")


def test_two_sources_have_a_log_in_common(begin: Begin) -> None:
    torture = begin("*.log")
    settings = json.loads(torture.node.config.read_text())
    first = settings["sources"][0]
    settings["sources"].append(
        {**first, "name": "again", "paths": [str(torture.logs / name) for name in ("job.log", "job.out")]}
    )
    torture.node.config.write_text(json.dumps(settings))
    torture.start()
    log = torture.write(torture.logs / "job.log", 20)
    torture.write(torture.logs / "job.out", 20)
    torture.write(torture.logs / "other.log", 20)
    torture.all_counted()
    rotate(log)
    torture.write(log, 20)
    torture.exact()


@pytest.mark.parametrize("change", ["renamed", "parted", "merged", "reordered"])
def test_logs_go_on_in_another_source(begin: Begin, change: str) -> None:
    torture = begin("*.log")
    settings = json.loads(torture.node.config.read_text())
    one = settings["sources"][0]
    jobs = {**one, "name": "jobs", "paths": [str(torture.logs / "job*.log")]}
    before, after = {
        "renamed": ([one], [{**one, "name": "other"}]),
        "parted": ([one], [jobs, one]),
        "merged": ([jobs, one], [one]),
        "reordered": ([one, jobs], [jobs, one]),
    }[change]
    torture.node.config.write_text(json.dumps({**settings, "sources": before}))
    torture.start()
    logs = [torture.write(torture.logs / name, 20) for name in ("job.log", "node.log")]
    torture.all_counted()
    torture.node.config.write_text(json.dumps({**settings, "sources": after}))
    for log in logs:
        torture.write(log, 10)
    torture.node.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    for log in logs:
        torture.write(log, 10)
    torture.exact()
