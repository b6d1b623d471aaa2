"""Hints from inotify: they wake the loop and say where to look; without them everything is found too, only later."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from watchdog.events import FileModifiedEvent

from exporter.sources.files.watch import MAX_FOLDERS, MAX_PATHS, Watch
from tests.support.tailing import Node, lines, write

SOON = 5.0  # seconds that an event may take to come; it takes milliseconds


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def node(tmp_path: Path, woken: threading.Event) -> Iterator[Node]:
    """A node that watches, and whose logs are all idle."""
    (tmp_path / "logs").mkdir()
    for number in range(50):
        write(tmp_path / f"logs/{number}.log", b"banner\n")
    one = Node(tmp_path / "logs/**/*.log", watch=True, wake=woken.set).rescan().poll(70.0).poll(0.0)
    assert one.watch_mode == "inotify"
    woken.clear()
    yield one
    one.close()


def hinted(node: Node, woken: threading.Event, seconds: float = SOON) -> Node:
    """The node after the poll that an event woke it for; no time has passed that would bring idle logs their turn."""
    assert woken.wait(seconds)
    woken.clear()
    return node.poll(0.0)


def test_a_line_in_an_idle_log_is_read_at_once(node: Node, woken: threading.Event, tmp_path: Path) -> None:
    write(tmp_path / "logs/7.log", lines(1))
    assert hinted(node, woken).seen == [1]


def test_a_new_log_is_found_at_once(node: Node, woken: threading.Event, tmp_path: Path) -> None:
    write(tmp_path / "logs/new.log", lines(1))
    assert hinted(node, woken).seen == [1]


def test_a_log_that_is_moved_in_is_found_at_once(node: Node, woken: threading.Event, tmp_path: Path) -> None:
    write(tmp_path / "new.log", lines(1))
    (tmp_path / "new.log").rename(tmp_path / "logs/new.log")
    assert hinted(node, woken).seen == [1]


def test_a_log_in_a_new_folder_is_found_at_once(node: Node, woken: threading.Event, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write(tmp_path / "run/job.log", lines(1))
    (tmp_path / "run").rename(tmp_path / "logs/run")
    assert hinted(node, woken).seen == [1]


def test_a_jobs_deepest_folder_ends_no_watch(
    node: Node, woken: threading.Event, tmp_path: Path, deep_folder: Path
) -> None:
    deep_folder.rename(tmp_path / "logs/deep")
    hinted(node, woken, seconds=120.0)  # 2,000 folders are walked twice first, which takes a loaded machine its time
    write(tmp_path / "logs/7.log", lines(1))
    while not node.seen:
        hinted(node, woken, seconds=120.0)


def test_a_rotation_is_followed_at_once(node: Node, woken: threading.Event, tmp_path: Path) -> None:
    write(tmp_path / "logs/7.log", lines(1))
    (tmp_path / "logs/7.log").rename(tmp_path / "logs/7.old")
    write(tmp_path / "logs/7.log", lines(2))
    hinted(node, woken)
    assert node.poll(0.0).seen == [1, 2]


def test_a_root_that_is_made_again_is_watched_again(node: Node, woken: threading.Event, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "logs")
    node.settle()
    assert node.watch_mode == "poll"
    (tmp_path / "logs").mkdir()
    node.rescan()
    assert node.watch_mode == "inotify"
    woken.clear()
    write(tmp_path / "logs/new.log", lines(1))
    assert hinted(node, woken).seen == [1]


def test_the_loop_is_woken_once_until_it_looks(tmp_path: Path) -> None:
    wakes: list[None] = []
    watch = Watch(lambda: wakes.append(None))
    for _ in range(3):
        for number in range(2 * MAX_PATHS):
            watch.on_any_event(FileModifiedEvent(f"/logs/{number}"))
        assert len(watch.take(0.0).paths) == MAX_PATHS
    assert len(wakes) == 3


def test_a_storm_of_events_ends_the_watching_for_a_while(tmp_path: Path) -> None:
    roots = {str(tmp_path): True}
    watch = Watch(lambda: None)
    watch.follow(roots, 0.0)
    watch.take(0.0)
    for number in range(20_000):
        watch.on_any_event(FileModifiedEvent(f"/logs/{number % 2}"))
    watch.take(10.0)
    watch.follow(roots, 20.0)
    assert watch.mode == "poll"
    watch.follow(roots, 400.0)
    assert watch.mode == "inotify"
    watch.close()


def test_a_tree_with_too_many_folders_is_polled(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    for number in range(MAX_FOLDERS + 1):
        (tmp_path / f"many/{number}").mkdir(parents=True)
    write(tmp_path / "many/7/job.log", lines(1))
    write(tmp_path / "few/job.log", lines(2))
    node = Node(tmp_path / "many/**/*.log", tmp_path / "few/*.log", watch=True).poll()
    assert node.watch_mode == "mixed"
    write(tmp_path / "many/9/job.log", lines(3))
    assert node.rescan().seen == [1, 2, 3]
    node.close()


def test_what_is_on_a_remote_file_system_is_polled() -> None:
    watch = Watch(lambda: None, mountinfo=lambda: "36 35 0:42 / / rw - nfs4 server:/logs rw\n")
    watch.follow({"/tmp": False}, 0.0)
    assert watch.mode == "poll"


def test_what_the_library_complains_of_does_not_get_onto_stderr() -> None:
    complain = (
        "import logging, exporter.sources.files.watch; "
        "logging.getLogger('watchdog.observers.inotify').error('called when the thread is inactive')"
    )
    done = subprocess.run([sys.executable, "-c", complain], check=True, capture_output=True, text=True)
    assert done.stderr == ""
