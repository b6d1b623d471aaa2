"""Logs that rotation has moved on, or compressed, before anybody has looked at them under their own name."""

from __future__ import annotations

import gzip
import itertools
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.sources.files import folders
from tests.support.tailing import Node, copytruncate, lines, write

BANNER = b"launcher: an option is at its default value\n" * 60


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """One that has looked at an empty folder a minute ago."""
    node = Node(tmp_path / "*.log", exclude=("*.gz",))
    node.now = time.time() - 60.0
    return node.rescan().commit()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


def rotate(log: Path, *, pack: bool = False) -> None:
    for number in range(8, 0, -1):
        for end in ("", ".gz"):
            if (old := Path(f"{log}.{number}{end}")).exists():
                old.rename(f"{log}.{number + 1}{end}")
    if pack:
        Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    else:
        log.rename(f"{log}.1")


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("banner", [b"", BANNER])
def test_rotated_before_its_path_was_ever_seen(node: Node, log: Path, banner: bytes, *, pack: bool, down: bool) -> None:
    for number in range(4):
        write(log, banner + lines(number))
        rotate(log, pack=pack)
    write(log, banner + lines(4))
    if down:
        node.crash()
    assert node.settle().seen == [0, 1, 2, 3, 4]
    assert node.commit().crash().settle().seen == [0, 1, 2, 3, 4]
    assert node.stats.dropped == {}


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("pack", [False, True])
def test_rotated_after_the_clock_was_set_back(node: Node, log: Path, *, pack: bool, down: bool) -> None:
    write(log, BANNER + lines(0))
    node.rescan().commit()
    an_hour_ago = time.time() - 3600.0
    node.now -= 3600.0
    if down:
        node.crash()
    else:
        node.poll()
    for number in (1, 2):
        write(log, BANNER + lines(number))
        rotate(log, pack=pack)
        os.utime(f"{log}.1.gz" if pack else f"{log}.1", (an_hour_ago, an_hour_ago))
    write(log, BANNER + lines(3))
    assert node.settle().seen == [0, 1, 2, 3]


def test_compressed_with_lines_that_were_written_after_the_clock_was_set_back(node: Node, log: Path) -> None:
    write(log, BANNER + lines(0))
    node.rescan().commit()
    write(log, lines(1))
    rotate(log, pack=True)
    an_hour_ago = time.time() - 3600.0
    os.utime(f"{log}.1.gz", (an_hour_ago, an_hour_ago))
    node.now -= 3600.0
    assert node.crash().settle().seen == [0, 1]


def rotations_unseen(node: Node, log: Path, *, known: bool) -> Iterator[int]:
    """Three logs of a path, each to be moved on before the next, while the node is down; it may have seen one before."""
    if known:
        write(log, lines(0))
        node.rescan().commit()
    node.close()
    for number in range(1, 4):
        write(log, lines(number))
        yield number


@pytest.mark.parametrize("known", [False, True])
def test_rotated_as_multilog_does_before_it_was_seen(tmp_path: Path, *, known: bool) -> None:
    """svlogd and s6-log do the same."""
    log = tmp_path / "current"
    node = Node(log)
    node.now = time.time() - 60.0
    node.rescan().commit()
    for number in rotations_unseen(node, log, known=known):
        log.rename(tmp_path / f"@4000000069{number:014x}.s")
    write(log, lines(4))
    write(tmp_path / "@me", lines(5))
    assert node.crash().settle().seen == [0, 1, 2, 3, 4][not known :]
    assert node.stats.dropped == {}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "name", ["job.log.old.169000000{}", "job.log.~{}~", "job.log.{}", "job-{}.log", "job.log-2026080{}"]
)
def test_rotated_to_names_of_many_kinds_before_it_was_seen(node: Node, log: Path, name: str, *, known: bool) -> None:
    for number in rotations_unseen(node, log, known=known):
        log.rename(log.with_name(name.format(number)))
    write(log, lines(4))
    assert node.crash().settle().seen == [0, 1, 2, 3, 4][not known :]
    assert node.stats.dropped == {}


def test_a_thousand_new_logs_in_a_folder_that_never_rests_cost_one_look_at_it(
    node: Node, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, lines(0))
    rotate(log)
    write(log, lines(1))
    for rank in range(1000):
        write(log.with_name(f"rank{rank}.log"), lines(100 + rank))
    looks: list[Path] = []

    def restless(path: str) -> folders.Folder:
        looks.append(Path(path))
        return replace(snapshot(path), settled=False)

    snapshot = folders.snapshot
    monkeypatch.setattr(folders, "snapshot", restless)
    assert sorted(node.settle().seen) == [0, 1, *range(100, 1100)]
    assert len(looks) < 10


@pytest.mark.parametrize("name", ["job.log.err", "job.log.json", "job.log.bak", "job.log-notes"])
def test_names_that_only_begin_alike_are_left_alone(node: Node, log: Path, name: str) -> None:
    write(log.with_name(name), lines(99))
    write(log, lines(1))
    assert node.settle().seen == [1]


def test_rotated_files_from_before_we_came_are_left_alone(log: Path) -> None:
    write(Path(f"{log}.1"), lines(99))
    node = Node(log)
    node.now = log.with_name("job.log.1").stat().st_mtime + 1.0
    node.rescan()
    write(log, lines(1))
    assert node.settle().seen == [1]


def test_what_is_excluded_is_left_alone_though_rotation_gave_it_its_name(tmp_path: Path, log: Path) -> None:
    node = Node(tmp_path / "*.log", exclude=("*.log.*",))
    node.now = time.time() - 60.0
    node.rescan()
    write(Path(f"{log}.1"), lines(99))
    write(log, lines(1))
    assert node.settle().seen == [1]


def test_a_log_that_is_forgotten_is_not_read_again_under_its_rotated_name(
    node: Node, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.sources.files.register.MAX_DONE", 2)
    write(log, lines(1))
    node.rescan()
    log.rename(f"{log}.1")
    node.settle().commit()
    for number in range(3):
        other = log.with_name(f"other-{number}.log")
        write(other, lines(10 + number))
        node.rescan()
        other.unlink()
        node.settle().commit()
    write(log, lines(2))
    assert node.settle().crash().settle().seen == [1, 2, 10, 11, 12]


def test_archives_that_begin_alike_are_told_apart(node: Node, log: Path) -> None:
    """One of them holds the rest of what was read, the others have not been seen."""
    write(log, BANNER + lines(1))
    node.rescan().commit()
    write(log, lines(2))
    for number in range(3, 6):
        rotate(log, pack=True)
        write(log, BANNER + lines(number))
    assert node.crash().settle().seen == [1, 2, 3, 4, 5]
    assert node.commit().crash().settle().seen == [1, 2, 3, 4, 5]


def test_an_archive_with_more_than_was_read_until_its_log_was_given_up(node: Node, log: Path) -> None:
    write(log, BANNER + lines(1))
    node.rescan().commit()
    with log.open("ab", buffering=0) as writer:
        log.rename(f"{log}.1")
        node.settle().commit()
        writer.write(lines(2))
    Path(f"{log}.1.gz").write_bytes(gzip.compress(Path(f"{log}.1").read_bytes()))
    Path(f"{log}.1").unlink()
    write(log, BANNER + lines(3))
    assert node.settle().seen == [1, 2, 3]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("seen", [False, True])
def test_an_archive_that_is_being_written(node: Node, log: Path, *, seen: bool, killed: bool) -> None:
    text = BANNER + b"".join(os.urandom(20).hex().encode() + b"\n" for _ in range(200))
    write(log, text + lines(1))
    if seen:
        node.rescan().commit()
    write(log, lines(2))
    log.rename(f"{log}.1")
    write(log, BANNER + lines(3))
    data = gzip.compress(Path(f"{log}.1").read_bytes())
    node.poll()
    for part in (b"", data[:15], data[15 : len(data) // 2], data[len(data) // 2 :])[: 3 if killed else 4]:
        write(Path(f"{log}.1.gz"), part)
        node.rescan().poll(2.0)
    if not killed:
        Path(f"{log}.1").unlink()
    assert node.settle().seen == [1, 2, 3]
    assert node.commit().crash().settle().seen == [1, 2, 3]


def test_an_archive_of_a_long_log_that_is_being_written_beside_it(node: Node, log: Path) -> None:
    """What is there of it can be unpacked, but it does not tell how long it will be."""
    write(log, lines(1) + b"".join(os.urandom(20).hex().encode() + b"\n" for _ in range(80_000)))
    node.rescan().commit()
    log.rename(f"{log}.1")
    write(log, lines(2))
    data = gzip.compress(Path(f"{log}.1").read_bytes(), compresslevel=1)
    write(Path(f"{log}.3.gz"), data[: len(data) * 3 // 4])
    node.rescan().poll(2.0)
    write(Path(f"{log}.3.gz"), data[len(data) * 3 // 4 :])
    assert node.settle().seen == [1, 2]


@pytest.mark.parametrize("how", ["renamed", "copied"])
def test_a_folder_was_renamed_and_its_log_rotated_while_the_node_was_down(tmp_path: Path, how: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write(run / "job.log", lines(1, 2))
    node = Node(tmp_path / "**/*.log")
    node.now = time.time() - 60.0
    node.rescan().commit()
    node.close()
    write(run / "job.log", lines(3))
    run = run.rename(tmp_path / "old")
    if how == "renamed":
        (run / "job.log").rename(run / "job.log.1")
    else:
        copytruncate(run / "job.log", run / "job.log.1")
    write(run / "job.log", lines(4))
    assert node.restart().settle().seen == [1, 2, 3, 4]
    assert node.stats.dropped == {}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("banner", [b"", BANNER])
@pytest.mark.parametrize("names", ["job.log.{}", "job.{}.log"])
def test_compressed_under_names_of_the_globs_before_they_were_seen(
    tmp_path: Path, log: Path, names: str, banner: bytes, *, seen: bool, known: bool
) -> None:
    """As logrotate does with copytruncate and compress, twice between two looks."""
    node = Node(tmp_path / "*.log", tmp_path / "*.log.*", exclude=("*.gz",))
    node.now = time.time() - 60.0
    node.rescan().commit()
    if known:
        write(log, banner + lines(0))
        node.rescan().commit()
    for number in range(1, 5):
        write(log, lines(number) if known and number == 1 else banner + lines(number))
        for old in range(number - 1, 0, -1):
            (tmp_path / f"{names.format(old)}.gz").rename(tmp_path / f"{names.format(old + 1)}.gz")
        copy = tmp_path / names.format(1)
        copytruncate(log, copy)
        if seen:
            node.rescan().commit()
        copy.with_name(f"{copy.name}.gz").write_bytes(gzip.compress(copy.read_bytes()))
        copy.unlink()
    write(log, lines(5))
    expected = [0, 1, 2, 3, 4, 5][not known :]
    if names == "job.{}.log" and not (known or seen):
        expected = [5]  # they may be those of other jobs
    assert node.settle().seen == expected
    assert node.commit().crash().settle().seen == expected


def test_an_archive_of_files_is_no_log(node: Node, log: Path) -> None:
    write(log, BANNER + lines(0))
    node.rescan().commit()
    with tarfile.open(f"{log}.1.tar.gz", "w:gz") as archive:
        archive.add(log, "job.log")
    log.unlink()
    write(log, BANNER + lines(1))
    assert node.settle().seen == [0, 1]
    assert node.stats.dropped == {"rotated_compressed": 1}


@pytest.mark.parametrize("looks", list(itertools.product((False, True), repeat=5)))
def test_a_log_that_was_copied_compressed_and_truncated_twice_is_counted_once(
    node: Node, log: Path, looks: tuple[bool, ...]
) -> None:
    """As logrotate's `copytruncate`, `compress` and `extension .log` do, with looks in between at different moments."""
    before_rotation, while_packed, *in_second = looks
    first, copy, packed = log.with_name("job.2.log.gz"), log.with_name("job.1.log"), log.with_name("job.1.log.gz")
    write(log, lines(0))
    node.settle()
    write(log, lines(1))
    if before_rotation:
        node.poll()
    copytruncate_after(log, copy, node.rescan)
    compress(copy, packed)
    if while_packed:
        node.rescan()
    write(log, lines(2))
    node.poll()
    write(log, lines(3))
    packed.rename(first)
    copytruncate_after(log, copy, lambda: None)
    if in_second[0]:
        node.poll()
    compress(copy, packed)
    if in_second[1]:
        node.rescan()
    write(log, lines(4))
    if in_second[2]:
        node.poll()
    seen = node.settle().seen
    assert len(set(seen)) == len(seen)


def copytruncate_after(log: Path, copy: Path, look: Callable[[], object]) -> None:
    shutil.copyfile(log, copy)
    look()
    os.truncate(log, 0)


def truncate_later(log: Path) -> None:
    """Truncate a log a millisecond after its copy was made, even where file times are coarser."""
    os.truncate(log, 0)
    later = log.stat().st_mtime_ns + 1_000_000
    os.utime(log, ns=(later, later))


def compress(path: Path, packed: Path) -> None:
    """As gzip and logrotate do: the time stays, the original goes."""
    pack(path, packed)
    path.unlink()


def pack(path: Path, packed: Path) -> None:
    status = path.stat()
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))


LOOKS = 12  # between the steps of two rotations


def two_rotations(log: Path, name: str) -> list[Callable[[], object]]:
    """As logrotate's `copytruncate` and `compress` do, with `extension .log` or without."""
    first, copy = log.with_name(f"{name.format(2)}.gz"), log.with_name(name.format(1))
    packed = copy.with_name(f"{copy.name}.gz")
    copy_and_pack: list[Callable[[], object]] = [
        lambda: shutil.copyfile(log, copy),
        lambda: truncate_later(log),
        lambda: pack(copy, packed),
        copy.unlink,
    ]
    between: list[Callable[[], object]] = [
        lambda: write(log, lines(2)),
        lambda: write(log, lines(3)),
        lambda: packed.rename(first),
    ]
    return [lambda: write(log, lines(1)), *copy_and_pack, *between, *copy_and_pack, lambda: write(log, lines(4))]


def look_between_steps(folder: Path, looks: Iterable[bool], seconds: float, name: str = "job.{}.log") -> Node:
    """A node that has read a log, and looks at it after some steps of two rotations."""
    folder.mkdir()
    node = Node(folder / "*.log", exclude=("*.gz",))
    node.now = time.time() - 60.0
    node.rescan().commit()
    write(folder / "job.log", lines(0))
    node.settle()
    for step, look in itertools.zip_longest(two_rotations(folder / "job.log", name), looks):
        step()
        if look:
            node.poll(seconds)
    node.settle().close()
    return node


@pytest.mark.parametrize("seconds", [0.25, 10.0])
def test_one_or_two_looks_amid_two_rotations_find_every_line(tmp_path: Path, seconds: float) -> None:
    for first, second in itertools.combinations_with_replacement(range(LOOKS), 2):
        looks = tuple(at in (first, second) for at in range(LOOKS))
        assert look_between_steps(tmp_path / f"{first}-{second}", looks, seconds).seen == [0, 1, 2, 3, 4], looks


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("earlier", list(itertools.product((False, True), repeat=2)))
def test_a_copy_that_waits_while_its_log_is_looked_for_is_counted_once(
    tmp_path: Path, earlier: tuple[bool, bool], *, later: bool
) -> None:
    """A look after the second copy makes it wait; then its log is truncated, and the copy compressed."""
    looks = (*earlier, *[False] * 6, True, False, False, later)
    assert look_between_steps(tmp_path / "logs", looks, 0.25, "job.log.{}").seen == [0, 1, 2, 3, 4]


def test_a_copy_that_is_compressed_before_the_next_walk_is_read(tmp_path: Path) -> None:
    """The archive has the time of the copy, which is before that of the empty log."""
    looks = [at in (1, 9, 10, 11) for at in range(LOOKS)]
    assert look_between_steps(tmp_path / "logs", looks, 0.25).seen == [0, 1, 2, 3, 4]
