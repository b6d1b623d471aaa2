"""What jobs write may hold secrets and hostile names: none of it leaves the node, or lies there for others to read."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Node, eventually, gpufault

SECRETS = ("CANARYPASSWORD", "CANARYTOKEN", "canaryuser", "canary@example.org", "hf_CANARYabcdefghijklmnop")
LINE = (
    "e2e crash seq=7 of log --password CANARYPASSWORD API_TOKEN=CANARYTOKEN for canary@example.org "
    "in /home/canaryuser/x with hf_CANARYabcdefghijklmnop\n"
)


def shown_in(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def test_no_secret_of_a_log_is_shown_anywhere(make_node: Callable[..., Node]) -> None:
    node = make_node()
    (node.logs / "canary@example.org.log").write_text("")
    node.start()
    with (node.logs / "canary@example.org.log").open("a") as log:
        log.write(LINE)
    eventually(lambda: node.value('gpufault_incidents_total{root_cause="e2e_cause",signature="e2e_crash"}') == 1.0)
    eventually(lambda: bool(node.records()))
    pages = {path: node.get(path) for path in ("/", "/api/v1/incidents", "/metrics", "/-/ready", "/-/healthy")}
    assert node.stop() == 0
    assert "A line of the end-to-end tests" in pages["/"]
    assert shown_in("".join(pages.values())) == []
    assert "event=incident" in node.log.read_text()
    assert shown_in(node.log.read_text()) == []
    journal = "".join(path.read_text() for path in (node.folder / "state/journal").iterdir())
    assert "--password [redacted]" in journal
    assert shown_in(journal) == []


@pytest.mark.parametrize("command", [["explain", LINE], ["doctor", "--config.file", "{config}"], ["scan", "-"]])
def test_no_secret_is_printed_by_a_command_whose_output_gets_shared(
    make_node: Callable[..., Node], command: list[str]
) -> None:
    node = make_node(sources=[{"kind": "files", "paths": ["/home/canaryuser/*.log"]}])
    packs = ["--signatures.dir", str(node.folder / "packs")] if command[0] != "doctor" else []
    words = [word.format(config=node.config) if "{config}" in word else word for word in command]
    done = subprocess.run([gpufault(), *words, *packs], input=LINE, capture_output=True, text=True, check=False)
    assert done.stdout
    # A path that the configuration names is shown as it is: whoever wrote it has to find it.
    assert shown_in(done.stdout + done.stderr) == (["canaryuser"] if command[0] == "doctor" else [])


@pytest.mark.parametrize("umask", [0, 0o027, 0o777 & ~0o700])
def test_nobody_else_may_read_what_the_daemon_keeps_whatever_the_umask(
    make_node: Callable[..., Node], umask: int
) -> None:
    node = make_node(state_dir="")
    node.config.write_text(
        node.config.read_text().replace('"state_dir": ""', f'"state_dir": "{node.folder}/above/state"')
    )
    (node.logs / "job.log").write_text("")
    node.start(umask=umask)
    with (node.logs / "job.log").open("a") as log:
        log.write(LINE)
    kept = node.folder / "above"
    eventually(lambda: list(kept.glob("state/journal/*.jsonl")) or None)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (kept, *kept.rglob("*"))}
    assert {"state.sqlite", "state.sqlite-wal", "lock", "journal-000001.jsonl"} <= {path.name for path in modes}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


def test_a_file_of_an_earlier_version_that_others_could_read_is_closed_to_them(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    journal = tmp_path / "state/journal"
    journal.mkdir(parents=True)
    for name in ("journal/journal-000001.jsonl", "lock"):
        (tmp_path / "state" / name).touch(mode=0o644)
    node = make_node()
    node.start()
    eventually(lambda: (journal / "journal-000001.jsonl").stat().st_size or None)
    assert stat.S_IMODE((journal / "journal-000001.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state/lock").stat().st_mode) == 0o600


def test_a_journal_is_not_written_through_a_symbolic_link(make_node: Callable[..., Node], tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    (tmp_path / "state/journal").mkdir(parents=True)
    (tmp_path / "state/journal/journal-000001.jsonl").symlink_to(victim)
    node = make_node()
    node.start()
    eventually(lambda: node.value("gpufault_journal_up") == 0.0)
    assert victim.read_text() == "mine\n"
