"""What jobs, people and full systems put where a log should be: each is passed over, counted once a file, said, and
stops nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.sources.files.filesystem import Refused, Roots
from tests.support.matches import not_as_root
from tests.support.tailing import Node, lines, write


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def secret(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def loop(path: Path) -> None:
    path.symlink_to(path)


def program(path: Path) -> None:
    path.write_bytes(b"\x7fELF\x02\x01\x01" + b"\x01" * 100 + lines(99))


def archive(path: Path) -> None:
    path.write_bytes(gzip.compress(lines(99)))


def records(path: Path) -> None:
    path.write_bytes(b"rank\0\0\0\1" * 1000 + lines(99))


def login_records(path: Path) -> None:
    """As /var/log/lastlog: nearly all of it is a hole (loki#11229)."""
    with path.open("wb") as file:
        file.seek(1 << 40)
        file.write(b"\1\0\0\0pts/0" + b"\0" * 500 + lines(99))


def utf_16(path: Path) -> None:
    path.write_bytes(("CRASH seq=99\n" * 10).encode("utf-16"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (fifo, "fifo"),
        (listening_socket, "socket"),
        (device, "device"),
        (Path.mkdir, "directory"),
        (secret, "outside_roots"),
        (loop, "link_loop"),
        (program, "binary"),
        (archive, "binary"),
        (records, "binary"),
        (login_records, "binary"),
        (utf_16, "binary"),
    ],
)
def test_what_is_no_log_is_counted_once_and_stops_nothing(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    write(tmp_path / "good.log", lines(1))
    make(tmp_path / "bad.log")
    node = Node(tmp_path / "*.log").settle().settle()
    write(tmp_path / "good.log", lines(2))
    node.settle()
    assert node.seen == [1, 2]
    assert node.stats.dropped == {reason: 1}
    assert [said for said in node.said if "bad.log" in said] == node.said
    assert len(node.said) == 1
    node.close()


@pytest.mark.parametrize("name", ["bad.log", "b\udcffd.log"])
def test_a_restart_counts_no_file_again_and_says_it_again(tmp_path: Path, name: str) -> None:
    program(tmp_path / name)
    node = Node(tmp_path / "*.log").rescan()
    assert sum(node.stats.dropped.values()) == 1
    assert sum(node.crash().rescan().stats.dropped.values()) == 1  # the count was lost with what it is stored with
    said = len(node.said)
    assert node.restart().rescan().stats.dropped == {}
    assert len(node.said) == said + 1
    (tmp_path / name).unlink()
    program(tmp_path / "another.log")
    assert node.rescan().stats.dropped == {"binary": 1}


def test_it_is_read_once_it_is_a_log(tmp_path: Path) -> None:
    for make in (fifo, loop, program, secret, Path.mkdir):
        path = tmp_path / f"{make.__name__}.log"
        make(path)
    node = Node(tmp_path / "*.log").settle()
    for number, path in enumerate(sorted(tmp_path.iterdir())):
        path.rmdir() if path.is_dir() else path.unlink()
        write(path, lines(number))
    assert node.settle().seen == [0, 1, 2, 3, 4]


def test_a_log_becomes_a_fifo_and_a_log_again(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, lines(0))
    node = Node(tmp_path / "*.log").rescan().commit()
    for number in range(1, 4):
        log.unlink()
        fifo(log)
        write(tmp_path / "other.log", lines(100 + number))
        node.settle()
        log.unlink()
        write(log, lines(number))
        node.settle()
    assert node.seen == [0, 1, 2, 3, 101, 102, 103]


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.log"), "wb") as file:
        file.write(lines(1))
    write(tmp_path / "café.log", lines(2))
    node = Node(tmp_path / "*.log").settle()
    assert node.seen == [2]
    assert node.stats.dropped == {"name_not_utf8": 1}


@pytest.mark.parametrize("glob", ["*.log", "*"])
@pytest.mark.parametrize("what", ["log", "folder", "link"])
def test_a_log_is_given_a_name_that_is_not_utf_8(tmp_path: Path, what: str, glob: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    log, odd = run / "job.log", os.fsdecode(b"caf\xe9")
    write(log, lines(1))
    node = Node(tmp_path / "**" / glob).rescan().commit()
    with log.open("ab", buffering=0) as writer:
        if what == "log":
            log.rename(run / odd)
        elif what == "folder":
            run.rename(tmp_path / odd)
        else:
            log.rename(run / odd)
            log.symlink_to(odd)
        writer.write(lines(2))
        node.rescan().commit()
        writer.write(lines(3))
        node.crash().rescan().commit()
        writer.write(lines(4))
    node.settle().commit()
    assert node.crash().settle().seen == [1, 2, 3, 4]
    assert all(match.path.isprintable() for match in node.matches)


def test_a_link_leads_only_where_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "data").mkdir()
    write(tmp_path / "data/real.log", lines(1))
    (tmp_path / "logs/job.log").symlink_to(tmp_path / "data/real.log")
    (tmp_path / "logs/folder").symlink_to(tmp_path / "data")
    assert Node(tmp_path / "logs/**/*.log").settle().seen == []
    assert Node(tmp_path / "logs/**/*.log", allow_roots=(str(tmp_path / "data"),)).settle().seen == [1]


def test_a_folder_that_becomes_a_link_to_another_place(tmp_path: Path) -> None:
    (tmp_path / "logs/run").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    write(tmp_path / "logs/run/job.log", lines(1))
    write(tmp_path / "secret/job.log", lines(2))
    node = Node(tmp_path / "logs/*/job.log").rescan()
    (tmp_path / "logs/run").rename(tmp_path / "logs/old")
    (tmp_path / "logs/run").symlink_to(tmp_path / "secret")
    assert node.settle().restart().settle().seen == [1]


@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_folder_that_becomes_a_link_amid_the_opening_opens_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """Opening a device does something: /dev/watchdog begins to count, a tape rewinds. A FIFO shows that it was opened."""
    (tmp_path / "logs/run").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    write(tmp_path / "logs/run/job.log", lines(1))
    os.mkfifo(tmp_path / "other/job.log")
    opened: list[str] = []
    system_open = os.open

    def slowly(path: str, flags: int, *more: int) -> int:
        opened.append(path)
        if len(opened) == when:
            (tmp_path / "logs/run").rename(tmp_path / "logs/old")
            (tmp_path / "logs/run").symlink_to(tmp_path / "other")
        descriptor = system_open(path, flags, *more)
        with pytest.raises(OSError, match="No such device or address"):  # nobody reads the FIFO
            system_open(tmp_path / "other/job.log", os.O_WRONLY | os.O_NONBLOCK)
        return descriptor

    monkeypatch.setattr(os, "open", slowly)
    with contextlib.suppress(Refused):
        Roots.of([str(tmp_path / "logs")]).open(str(tmp_path / "logs/run/job.log")).close()
    assert opened


# -- links of one user to another's files

ALICE, MALLORY = 2001, 2002
HOMES = pytest.mark.skipif(os.getuid() != 0, reason="gives files to users")


class Homes:
    """/home of alice, who has a private folder beside her logs, and of mallory, who wants to read it."""

    def __init__(self, home: Path) -> None:
        self.home, self.alice, self.mallory = home, home / "alice", home / "mallory"
        self.private = self.alice / "private"
        for folder in (self.private, self.mallory):
            folder.mkdir(parents=True)
        write(self.private / "x.log", lines(66))
        self.private.chmod(0o700)
        (self.private / "x.log").chmod(0o600)
        self.give(ALICE, self.alice, self.private, self.private / "x.log")
        self.give(MALLORY, self.mallory)

    def give(self, uid: int, *paths: Path) -> None:
        for path in paths:
            os.chown(path, uid, uid, follow_symlinks=False)

    def link(self, path: Path, target: Path | str, owner: int = MALLORY) -> None:
        path.symlink_to(target)
        self.give(owner, path)

    def folder(self, path: Path, owner: int = MALLORY) -> Path:
        path.mkdir()
        self.give(owner, path)
        return path


def folder_is_linked(homes: Homes) -> None:
    homes.link(homes.mallory / "logs", homes.private)


def folder_is_linked_by_a_relative_path(homes: Homes) -> None:
    homes.link(homes.mallory / "logs", "../alice/./private/../private/")


def file_is_linked(homes: Homes) -> None:
    homes.link(homes.folder(homes.mallory / "logs") / "x.log", homes.private / "x.log")


def links_are_chained(homes: Homes) -> None:
    homes.link(homes.mallory / "a", homes.private)
    homes.link(homes.mallory / "b", "a")
    homes.link(homes.mallory / "logs", "../mallory/b")


def link_leads_over_the_administrators(homes: Homes) -> None:
    homes.link(homes.home / "of_alice", "alice", owner=0)
    homes.link(homes.mallory / "logs", "../of_alice/private")


def link_leads_through_proc(homes: Homes) -> None:
    homes.link(homes.mallory / "logs", f"/proc/self/root{homes.private}")


def file_is_linked_hard(homes: Homes) -> None:
    os.link(homes.private / "x.log", homes.folder(homes.mallory / "logs") / "x.log")


def file_is_linked_hard_in_a_shared_folder(homes: Homes) -> None:
    folder = homes.folder(homes.home / "shared", owner=0)
    folder.chmod(0o1777)
    os.link(homes.private / "x.log", homes.folder(folder / "logs", owner=0) / "x.log")
    (folder / "logs").chmod(0o1777)


def home_is_linked(homes: Homes) -> None:
    homes.folder(homes.mallory / "logs")
    (homes.mallory / "logs").rmdir()
    homes.mallory.rmdir()
    homes.link(homes.mallory, "alice")
    homes.private.rename(homes.alice / "logs.d")
    homes.link(homes.alice / "logs", "logs.d", owner=ALICE)  # two owners, one file: at least one may not


@HOMES
@pytest.mark.parametrize("glob", ["*/logs/*.log", "mallory/logs/*.log", "mallory/logs/x.log", "shared/logs/*.log"])
@pytest.mark.parametrize(
    "make",
    [
        folder_is_linked, folder_is_linked_by_a_relative_path, file_is_linked, links_are_chained,
        link_leads_over_the_administrators, link_leads_through_proc, file_is_linked_hard,
        file_is_linked_hard_in_a_shared_folder,
    ],
)  # fmt: skip
def test_no_users_link_leads_to_another_users_file(tmp_path: Path, make: Callable[[Homes], None], glob: str) -> None:
    homes = Homes(tmp_path / "home")
    make(homes)
    leads_there = bool(list(homes.home.glob(glob)))
    node = Node(homes.home / glob, allow_roots=(str(tmp_path),)).settle().settle()
    assert node.seen == []
    assert node.stats.dropped == ({"another_users_file": 1} if leads_there else {})
    node.close()


@HOMES
def test_a_home_that_is_a_link_to_another_leads_only_to_files_of_its_owner(tmp_path: Path) -> None:
    homes = Homes(tmp_path / "home")
    home_is_linked(homes)
    node = Node(homes.home / "*/logs/*.log").settle().settle()
    assert node.seen == [66]  # once, by alice's own link
    assert {match.path for match in node.matches} == {str(homes.alice / "logs/x.log")}
    node.close()


@HOMES
def test_links_of_a_files_owner_and_of_the_administrator_are_followed(tmp_path: Path) -> None:
    homes = Homes(tmp_path / "home")
    own = homes.folder(homes.mallory / "here")
    for number, path in enumerate([own / "a.log", homes.private / "b.log"]):
        write(path, lines(number))
    homes.give(MALLORY, own / "a.log")
    homes.give(ALICE, homes.private / "b.log")
    os.link(own / "a.log", own / "again.log")
    homes.link(homes.mallory / "logs", "here")
    homes.link(homes.alice / "logs", "private", owner=0)
    (homes.private / "x.log").unlink()
    node = Node(homes.home / "*/logs/*.log").settle().settle()
    assert (node.seen, node.stats.dropped) == ([0, 1], {})
    node.close()


@HOMES
@pytest.mark.parametrize("goes_back", [False, True])
@pytest.mark.parametrize("when", range(1, 9))
def test_a_link_that_is_exchanged_amid_the_opening_leads_to_no_other_users_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int, *, goes_back: bool
) -> None:
    homes = Homes(tmp_path / "home")
    own = homes.folder(homes.mallory / "own")
    write(own / "x.log", lines(1))
    homes.give(MALLORY, own / "x.log")
    homes.link(homes.mallory / "logs", homes.private if goes_back else "own")
    calls = []

    def exchanged(call: Callable[..., object]) -> Callable[..., object]:
        def inner(*args: object, **more: object) -> object:
            calls.append(args)
            if len(calls) == when:
                (homes.mallory / "logs").unlink()
                homes.link(homes.mallory / "logs", "own" if goes_back else homes.private)
            return call(*args, **more)

        return inner

    for name in ("open", "readlink"):
        monkeypatch.setattr(os, name, exchanged(getattr(os, name)))
    try:
        file = Roots.of([str(homes.home)]).open(str(homes.mallory / "logs/x.log"))
    except (Refused, FileNotFoundError):
        return
    assert file.status().st_uid == MALLORY
    file.close()


# -- permissions and limits


def test_a_file_that_may_not_be_read_yet(open_path: Path) -> None:
    log = open_path / "job.log"
    write(log, lines(1))
    log.chmod(0)
    with not_as_root():
        node = Node(open_path / "*.log").settle().settle()
        assert node.stats.dropped == {"unreadable": 1}
        os.seteuid(0) if os.getuid() == 0 else None
        log.chmod(0o644)
        os.seteuid(65534) if os.getuid() == 0 else None
        assert node.rescan().seen == [1]
        node.close()


def test_a_folder_that_may_not_be_listed_for_a_while(open_path: Path) -> None:
    (open_path / "day").mkdir()
    write(open_path / "day/job.log", lines(1))
    node = Node(open_path / "**/*.log").rescan()
    (open_path / "day").chmod(0)
    with not_as_root():
        node.settle()
    assert node.stats.dropped["folder_unreadable"] == 1
    (open_path / "day").chmod(0o755)
    write(open_path / "day/job.log", lines(2))
    assert node.settle().seen == [1, 2]


@pytest.mark.parametrize("left", [0, 1, 2, 6, 20])
def test_no_descriptor_is_left(tmp_path: Path, left: int) -> None:
    for number in range(40):
        write(tmp_path / f"{number}.log", lines(number))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        used = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + left, hard))
    try:
        node = Node(tmp_path / "*.log").rescan().poll(times=3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "too_many_open" in node.stats.dropped
    assert node.settle().rescan().seen == list(range(40))
    node.close()


def test_few_files_are_kept_open_and_all_are_read(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(40)]
    node = Node(tmp_path / "*.log", open_files=8).poll()
    for round_number in range(3):
        for number, path in enumerate(paths):
            write(path, lines(100 * round_number + number))
        node.rescan()
        assert node.stats.open_files <= 8
    assert node.seen == [100 * r + n for r in range(3) for n in range(40)]


def test_a_file_that_is_idle_for_long_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.sources.files.log.may_stay", lambda _: False)  # so long ago it was written
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(log).rescan()
    assert node.stats.open_files == 1
    node.poll(1000.0, times=4)
    assert node.stats.open_files == 0
    write(log, lines(2))
    assert node.rescan().seen == [1, 2]


def test_input_output_errors_are_counted_and_survived() -> None:
    node = Node("/proc/self/mem").settle()
    assert node.stats.dropped == {"io_error": 1}


def test_files_may_vanish_at_any_moment(tmp_path: Path) -> None:
    node = Node(tmp_path / "**/*.log").poll()
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / "job.log", lines(number))
        node.poll(10.0)
        (folder / "job.log").unlink()
        folder.rmdir()
        node.poll(times=number % 3)
    assert node.settle().seen == list(range(20))
    assert node.stats.files == 0


def test_a_hole_in_the_middle_costs_no_time(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, lines(1))
    with log.open("r+b") as file:
        file.seek(1 << 42)
        file.write(lines(2))
    node = Node(log).rescan().poll(times=3)
    assert node.seen == [1, 2]
    assert node.stats.bytes_read < 1 << 24


def test_a_log_that_grows_by_a_hole_is_read_on(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(log).rescan()
    for number in (2, 3):
        os.truncate(log, log.stat().st_size + (1 << 30))
        node.poll(times=2)
        write(log, lines(number))
        node.poll(times=3)
    assert node.seen == [1, 2, 3]
    assert node.restart().settle().seen == [1, 2, 3]


def test_space_that_is_reserved_ahead_is_not_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(lines(1) + b"\0" * 5000)
    node = Node(log).rescan().poll(2.0)
    with log.open("r+b") as file:
        file.seek(len(lines(1)))
        file.write(lines(2))
    assert node.settle().seen == [1, 2]
