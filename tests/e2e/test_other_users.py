"""Users of one node and a real daemon: none reads another's log by a link, and none takes another's place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Node, eventually

ALICE, MALLORY = 2001, 2002
GREEDY_FILES = 50_100

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(os.getuid() != 0, reason="gives files to users")]


def write(path: Path, uid: int, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
    os.chown(path, uid, uid)


def dropped(node: Node, reason: str) -> float | None:
    return node.value(f'gpufault_source_dropped_total{{reason="{reason}",source="files"}}')


def test_a_users_link_to_another_users_private_folder_shows_nothing(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    private, own = home / "alice/private", home / "mallory/here"
    for folder, uid in ((private, ALICE), (own, MALLORY)):
        folder.mkdir(parents=True)
        os.chown(folder, uid, uid)
        folder.chmod(0o700)
    node = make_node([{"kind": "files", "paths": [f"{home}/*/logs/*.log"]}])
    node.start()
    write(private / "x.log", ALICE, "e2e crash seq=1 of alice\n")
    (home / "mallory/logs").symlink_to(private)
    os.lchown(home / "mallory/logs", MALLORY, MALLORY)
    eventually(lambda: dropped(node, "another_users_file"))
    (home / "mallory/logs").unlink()
    (home / "mallory/logs").symlink_to("here")
    os.lchown(home / "mallory/logs", MALLORY, MALLORY)
    write(own / "y.log", MALLORY, "e2e crash seq=2 of mallory\n")
    eventually(node.records)
    assert [record["captures"]["seq"] for record in node.records()] == ["2"]
    assert "of alice" not in node.get("/api/v1/incidents")


def test_many_files_of_one_user_stop_no_log_of_another(make_node: Callable[..., Node], tmp_path: Path) -> None:
    folder = tmp_path / "jobs/m"
    folder.mkdir(parents=True)
    node = make_node([{"kind": "files", "paths": [f"{tmp_path}/jobs/**/*.log"], "start": "beginning"}])
    node.start()
    before = time.monotonic()
    for number in range(GREEDY_FILES):
        descriptor = os.open(folder / f"{number}.log", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"nothing\n")
        os.fchown(descriptor, MALLORY, MALLORY)
        os.close(descriptor)
    eventually(lambda: (node.value('gpufault_source_files{source="files"}') or 0.0) >= 50_000, 300.0)
    write(node.logs / "a.log", ALICE, "e2e crash seq=1 of alice\n")
    eventually(node.records, 60.0 + time.monotonic() - before)
    write(folder / "7.log", MALLORY, "e2e crash seq=2 of mallory\n")
    eventually(lambda: node.records()[1:], 60.0 + time.monotonic() - before)
    assert [record["captures"]["log"] for record in node.records()] == ["alice", "mallory"]
