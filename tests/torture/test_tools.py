"""Programs that rotate, copy, edit, move and restore logs: run as they are, against the real daemon."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import eventually
from tests.support.programs import needs, needs_root, skip_without

from .conftest import Torture, both_watchers

pytestmark = pytest.mark.nightly  # programs that write or move logs, many of each kind

Followed = tuple[Torture, Path]
Begin = Callable[..., Torture]
BANNER = b"launcher: an option is at its default value\n" * 60


def sh(command: str, folder: Path) -> None:
    subprocess.run(["sh", "-ec", command], cwd=folder, check=True)


def unseen(torture: Torture, command: str) -> None:
    """Run a command to its end before the daemon looks: what it sees of a file that is being copied is a log."""
    assert torture.node.process is not None
    torture.node.process.send_signal(signal.SIGSTOP)
    sh(command, torture.logs)
    torture.node.process.send_signal(signal.SIGCONT)


# -- rotation


@needs("logrotate")
@pytest.mark.parametrize(
    "how",
    [
        "olddir {old}\ncreate",
        "olddir {old}\ncopytruncate",
        "olddir {old}\nrenamecopy",
        "create\nrotate 1\nshred",
        "create\nextension .log",
        "copytruncate\nextension .log\ncompress",
        "create\nstart 0\ncompress",
        "copytruncate\ncompress\ndelaycompress",
    ],
)
def test_logrotate_in_more_of_its_modes(begin: Begin, how: str) -> None:
    torture = begin("*.log", "old/*", exclude=["*.gz"])
    old = torture.logs / "old"
    old.mkdir()
    torture.start()
    log = torture.write(torture.logs / "job.log", 100)
    torture.all_counted()
    for round_ in range(6):
        torture.write(log, 30)
        if round_ % 3 == 2 and "shred" not in how:
            torture.node.kill()
        if "shred" in how:
            torture.all_counted()
        torture.logrotate(log, how.format(old=old))
        torture.write(log, 20)
        if round_ % 3 == 2 and "shred" not in how:
            torture.start()
        if "extension" in how:
            torture.all_counted()
    torture.exact()


@pytest.mark.parametrize(
    "command",
    ["svlogd -tt {folder}", "multilog s4096 n20 {folder}", "s6-log n20 s4096 {folder}"],
    ids=lambda c: c.split()[0],
)
def test_a_logger_with_a_folder_of_its_own(begin: Begin, command: str) -> None:
    skip_without(command.split()[0])
    torture = begin("*/current").start()
    folder = torture.logs / "app"
    folder.mkdir()
    if command.startswith("svlogd"):
        (folder / "config").write_text("s4096\nn20\n")
    with subprocess.Popen(command.format(folder=folder).split(), stdin=subprocess.PIPE) as logger:
        assert logger.stdin is not None
        for round_ in range(8):
            for _ in range(5):
                logger.stdin.write(torture.lines(30))
                logger.stdin.flush()
            if round_ == 3:
                torture.all_counted()
                torture.node.kill()
            if round_ == 5:
                torture.start().all_counted()
        logger.stdin.close()
    torture.exact("app/current")


@needs("rotatelogs")
def test_rotatelogs_goes_round_in_a_circle(begin: Begin) -> None:
    torture = begin("*.log*").start()
    with subprocess.Popen(["rotatelogs", "-n", "3", torture.logs / "job.log", "2K"], stdin=subprocess.PIPE) as logger:
        assert logger.stdin is not None
        for _ in range(30):
            logger.stdin.write(torture.lines(10))
            logger.stdin.flush()
            torture.all_counted()
        logger.stdin.close()
    torture.exact()


@needs("cronolog")
def test_cronolog(begin: Begin) -> None:
    torture = begin("*.log").start()
    link, template = torture.logs / "job.log", torture.logs / "%H%M%S.log"
    with subprocess.Popen(["cronolog", f"--symlink={link}", str(template)], stdin=subprocess.PIPE) as logger:
        assert logger.stdin is not None
        for _ in range(12):
            logger.stdin.write(torture.lines(10))
            logger.stdin.flush()
            time.sleep(0.4)  # its names are seconds
        logger.stdin.close()
    torture.exact()


@needs("savelog")
@pytest.mark.parametrize("how", ["", "-n", "-d"])
def test_savelog(followed: Followed, how: str) -> None:
    torture, log = followed
    for round_ in range(4 if how != "-d" else 1):
        torture.write(log, 30)
        if round_ == 2:
            torture.node.kill()
        subprocess.run(["savelog", "-q", "-c", "9", *how.split(), log], check=True)
        torture.write(log, 20)
        if round_ == 2:
            torture.start()
    torture.exact()


def test_newsyslog_packs_at_once_and_counts_from_0(followed: Followed) -> None:
    torture, log = followed
    for round_ in range(4):
        torture.write(log, 30)
        if round_ == 2:
            torture.node.kill()
        sh(
            "for n in 5 4 3 2 1 0; do if [ -e job.log.$n.gz ]; then mv job.log.$n.gz job.log.$((n + 1)).gz; fi; done",
            log.parent,
        )
        sh("mv job.log job.log.0; touch job.log; gzip job.log.0", log.parent)
        torture.write(log, 20)
        if round_ == 2:
            torture.start()
    torture.exact()


@pytest.mark.parametrize("packed", ["gzip", "none"])
def test_the_kubelet_rotates_a_containers_log(begin: Begin, packed: str) -> None:
    """Rename to a time, compress the one before by way of a .tmp, delete the oldest, reopen."""
    torture = begin("*/*/*.log", format="cri").start()
    folder = torture.logs / "ns_pod_uid" / "app"
    folder.mkdir(parents=True)
    log = folder / "0.log"

    def cri(count: int) -> None:
        stamp = b"2026-08-01T10:00:00.123456789Z stdout F "
        with log.open("ab") as writer:
            writer.write(b"".join(stamp + line for line in torture.lines(count).splitlines(keepends=True)))

    cri(20)
    torture.all_counted()
    for round_ in range(7):
        cri(30)
        if round_ % 3 == 2:
            torture.node.kill()
        old = sorted(path for path in folder.glob("0.log.2*") if path.suffix != ".gz")
        if packed == "gzip":
            for path in old:
                temporary = Path(f"{path}.tmp")
                temporary.write_bytes(gzip.compress(path.read_bytes()))
                temporary.rename(f"{path}.gz")
                path.unlink()
        log.rename(folder / f"0.log.20260801-10000{round_}")
        log.touch()
        cri(20)
        if round_ % 3 == 2:
            torture.start()
        if round_ >= 4:
            torture.all_counted()
            min(folder.glob("0.log.2*")).unlink()
    log = folder / "last.log"
    torture.all_counted()
    assert torture.counted() == torture.written
    torture.node.kill()
    torture.start()
    cri(10)
    torture.all_counted()
    assert torture.counted() == torture.written


# -- jobs


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_slurm_runs_a_job_again(followed: Followed, mode: str, *, down: bool) -> None:
    """With --open-mode=append it goes on, with truncate it begins anew; the head is the same each time."""
    torture, log = followed
    for _ in range(2):
        torture.all_counted()
        if down:
            torture.node.kill()
        with log.open(mode) as writer:
            writer.write(BANNER)
            writer.flush()
            writer.write(torture.lines(60))
        if down:
            torture.start()
    torture.exact()


def test_four_tasks_append_to_one_log_while_it_is_rotated(followed: Followed) -> None:
    torture, log = followed
    writers = [os.open(log, os.O_WRONLY | os.O_APPEND) for _ in range(4)]
    for round_ in range(6):
        for writer in writers:
            os.write(writer, torture.lines(10))
        log.rename(f"{log}.{round_}")
        log.touch()
        for number, writer in enumerate(writers):
            os.write(writer, torture.lines(5))
            os.close(writer)
            writers[number] = os.open(log, os.O_WRONLY | os.O_APPEND)
    for writer in writers:
        os.close(writer)
    torture.exact()


def test_a_running_jobs_folder_is_moved_to_those_that_are_done(begin: Begin) -> None:
    torture = begin("**/*.log").start()
    (torture.logs / "done").mkdir()
    for number in range(4):
        folder = torture.logs / "running" / str(number)
        folder.mkdir(parents=True)
        with (folder / "job.log").open("ab", buffering=0) as writer:
            writer.write(torture.lines(30))
            if number % 2:
                torture.all_counted()
            folder.rename(torture.logs / "done" / str(number))
            writer.write(torture.lines(20))
    torture.exact()


@both_watchers
def test_a_jobs_folder_is_deleted_and_made_again_while_it_writes(begin: Begin) -> None:
    torture = begin("**/*.log").start()
    folder = torture.logs / "run"
    for _ in range(3):
        folder.mkdir()
        torture.write(folder / "job.log", 40)
        torture.all_counted()
        with (folder / "job.log").open("ab", buffering=0) as writer:
            shutil.rmtree(folder)
            writer.write(torture.lines(20))
            folder.mkdir()
            torture.write(folder / "job.log", 60)
            torture.all_counted()
            writer.write(torture.lines(5))
            torture.all_counted()
        shutil.rmtree(folder)
    torture.exact()


# -- copies


@needs("rsync")
@pytest.mark.parametrize(
    ("how", "down"),
    [
        ("", False),
        ("--times", False),
        ("--inplace", False),
        ("--append-verify", False),
        ("", True),
        ("--inplace", True),
    ],
)
def test_rsync_brings_a_log_that_grows(begin: Begin, how: str, *, down: bool) -> None:
    torture = begin("*.log").start()
    origin = torture.node.folder / "origin"
    origin.mkdir()
    (origin / "job.log").write_bytes(BANNER)
    for _ in range(3):
        torture.write(origin / "job.log", 60)
        if down:
            torture.node.kill()
        subprocess.run(
            ["rsync", *how.split(), "--ignore-times", origin / "job.log", torture.logs / "job.log"], check=True
        )
        if down:
            torture.start()
        torture.all_counted()
    torture.exact()


@needs("rsync")
def test_rsync_brings_a_log_that_was_rotated_where_it_comes_from(begin: Begin) -> None:
    torture = begin("*.log").start()
    origin = torture.node.folder / "origin"
    origin.mkdir()
    log = origin / "job.log"
    for round_ in range(4):
        torture.write(log, 60)
        subprocess.run(
            ["rsync", "--recursive", "--times", "--ignore-times", f"{origin}/", f"{torture.logs}/"], check=True
        )
        torture.all_counted()
        log.rename(f"{log}.{round_}")
    torture.exact()


@pytest.mark.parametrize(
    ("edit", "down"),
    [
        *(
            (edit, down)
            for down in (False, True)
            for edit in ("sed -i -e '$a\\' job.log", "cp job.log tmp; mv tmp job.log")
        ),
        *(
            (edit, True)
            for edit in (  # what is seen while it is written, or between truncation and writing, is another log
                "vim -es -u NONE -c 'set backupcopy=yes' -c 'wq!' job.log",
                "vim -es -u NONE -c 'set backupcopy=no' -c 'wq!' job.log",
                "tar cf t.tar job.log; rm job.log; tar xf t.tar; rm t.tar",
                "gzip job.log; gunzip job.log.gz",
                "cp -p job.log x; rm job.log; cp -p x job.log; rm x",
            )
        ),
    ],
)
def test_a_log_is_saved_or_restored_as_it_is(followed: Followed, edit: str, *, down: bool) -> None:
    torture, log = followed
    skip_without(edit.split()[0])
    for _ in range(2):
        torture.write(log, 50)
        torture.all_counted()
        if down:
            torture.node.stop()
        sh(edit, log.parent)
        if down:
            torture.start()
        torture.all_counted()
        torture.write(log, 20)
        torture.all_counted()
    torture.exact()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "jobs" / "disk"
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "--lazy", path], check=False)


@needs_root
@pytest.mark.parametrize(
    "command",
    [
        "mv job.log disk/",
        "mv job.log disk/other.log",
        pytest.param("rsync -a --remove-source-files job.log disk/", marks=needs("rsync")),
    ],
)
@pytest.mark.parametrize("down", [False, True])
def test_a_log_moves_to_another_mount(begin: Begin, disk: Path, command: str, *, down: bool) -> None:
    torture = begin("**/*.log").start()
    log = torture.write(torture.logs / "job.log", 5000)
    torture.all_counted()
    if down:
        torture.node.stop()
        sh(command, torture.logs)
        torture.start()
    else:
        unseen(torture, command)
    moved = next(disk.glob("*.log"))
    torture.write(torture.logs / "other.log", 5)
    torture.all_counted()
    torture.write(moved, 5)
    torture.write(log, 20)
    torture.exact()


@pytest.mark.parametrize(("lines", "command"), [(5, "cp -p job.log copy.log"), (500, "cp -pr run2 run3")])
def test_a_log_is_copied_with_its_time(begin: Begin, lines: int, command: str) -> None:
    torture = begin("**/*.log").start()
    for folder in ("run", "run2"):
        (torture.logs / folder).mkdir()
    log = torture.write(torture.logs / "job.log", lines)
    torture.write(torture.logs / "run2/job.log", lines)
    torture.all_counted()
    unseen(torture, command)
    eventually(lambda: torture.node.value('gpufault_source_files{source="files"}') == 3.0 or None)
    torture.write(log, 5)
    torture.exact()


# -- odd files


def test_a_log_becomes_a_folder_of_logs(begin: Begin) -> None:
    torture = begin("**/*.log").start()
    log = torture.write(torture.logs / "job.log", 50)
    torture.all_counted()
    log.unlink()
    log.mkdir()
    torture.write(log / "rank.log", 50)
    torture.all_counted()
    shutil.rmtree(log)
    torture.write(log, 70)
    torture.exact()


def test_a_hole_is_punched_where_it_was_read(followed: Followed) -> None:
    """As those do who free the space of a log that a job still writes."""
    torture, log = followed
    for _ in range(3):
        torture.write(log, 400)
        torture.all_counted()
        sh("fallocate --punch-hole --offset 0 --length 8192 job.log", log.parent)
        torture.write(log, 20)
        torture.all_counted()
    torture.exact()
