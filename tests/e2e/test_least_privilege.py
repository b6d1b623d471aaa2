"""What code that has taken the daemon over can reach: the real daemon, as root, with a program of its own as the intruder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.handles import handle_of, read
from tests.support.programs import needs_root

from .conftest import Node

HANDLES = Path(__file__).parents[1] / "support" / "handles.py"


@needs_root
def test_the_daemon_and_what_it_starts_cannot_open_a_file_by_its_handle(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    folders = [tmp_path / "secrets", tmp_path / "logs"]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "shadow").write_text("root:$6$hash")
    attack = [handle_of(folders[0] / "shadow"), str(folders[1])]
    assert read(*attack) == "root:$6$hash"  # by way of another folder of the same disk
    node = make_node(facts={"commands": {"stolen": [sys.executable, str(HANDLES), *attack]}})
    node.start()
    assert node.value('gpufault_node_fact{fact="stolen",value="EPERM"}') == 1.0
    assert node.process
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    assert "Seccomp:\t2\n" in status
