"""Users of one node and a real daemon: none reads another's log by a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import needs_root

from .conftest import Node, eventually

ALICE, MALLORY = 2001, 2002

pytestmark = [pytest.mark.heavy, needs_root]


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
