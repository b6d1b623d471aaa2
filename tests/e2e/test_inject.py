"""`gpufault inject` where the daemon's endpoint has TLS and users."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.cli import inject
from exporter.cli.main import main

from .conftest import Guarded, Node, eventually, gpufault


def test_a_test_line_is_not_written_through_a_link_in_a_users_folder(
    make_node: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    monkeypatch.setattr(inject.secrets, "token_hex", "0".__mul__)
    monkeypatch.setattr(inject, "_count", lambda *_: 0.0)
    (node.logs / f"{inject.NAME}-0000.log").symlink_to(tmp_path / "victim")
    assert main(["inject", "--config.file", str(node.config), "--timeout=0"]) == 3
    assert "File exists" in capsys.readouterr().err
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(("make", "told"), [("link", "Too many levels of symbolic links"), ("fifo", "No such device")])
def test_a_file_that_is_named_is_no_link_and_waits_for_no_reader(
    make_node: Callable[..., Node],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make: str,
    told: str,
) -> None:
    node = make_node()
    monkeypatch.setattr(inject, "_count", lambda *_: 0.0)
    (tmp_path / "victim").touch()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "fifo")
    assert main(["inject", "--config.file", str(node.config), "--timeout=0", f"--file={tmp_path / make}"]) == 3
    assert told in capsys.readouterr().err
    assert (tmp_path / "victim").read_text() == ""


def test_a_test_line_is_written_to_what_a_process_has_open(
    make_node: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As to a pod's own output, which is `/proc/1/fd/1`."""
    node = make_node()
    monkeypatch.setattr(inject, "_count", lambda *_: 0.0)
    with (tmp_path / "output").open("w") as output:
        main(["inject", "--config.file", str(node.config), "--timeout=0", f"--file=/proc/self/fd/{output.fileno()}"])
    assert "gpufault inject: test line" in (tmp_path / "output").read_text()


def test_a_test_line_is_seen_through_tls_and_with_a_password(make_node: Callable[..., Node], guarded: Guarded) -> None:
    node = make_node()
    node.wrap = guarded.environment
    node.start()

    def injected(*flags: str) -> tuple[int, str]:
        where = ("--config.file", str(node.config), f"--url=https://{node.address}/metrics")
        done = subprocess.run([gpufault(), "inject", *where, *flags], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = injected(guarded.trust)
    assert code == 3
    assert "401 Unauthorized; give --user and --password-file" in said
    assert "certificate verify failed" in injected(*guarded.login)[1].lower()
    code, said = injected(guarded.trust, *guarded.login)
    assert code == 0, said
    assert said.startswith("seen: ")


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_test_line_needs_no_log_that_a_job_has_written(
    make_node: Callable[..., Node], tmp_path: Path, has_folder: bool
) -> None:
    logs = tmp_path / "logs"
    (logs / "ada").mkdir(parents=True) if has_folder else logs.mkdir()
    node = make_node([{"kind": "files", "paths": [f"{logs}/*/slurm-*.out"]}])
    node.start()
    done = subprocess.run(
        [gpufault(), "inject", f"--config.file={node.config}", f"--url=http://{node.address}/metrics"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in logs.iterdir()] == (["ada"] if has_folder else [])


@pytest.mark.heavy
def test_the_example_of_a_signature_is_recognised_by_the_daemon_and_is_not_an_incident(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    packs = tmp_path / "packs"
    packs.mkdir()
    pack = packs / "mine.yaml"
    node = make_node(signatures={"dirs": [str(packs)]})
    node.start()
    pack.write_text(PACK)

    def inject(id_: str, *flags: str) -> subprocess.CompletedProcess[str]:
        where = (f"--config.file={node.config}", f"--url=http://{node.address}", f"--signature={id_}", *flags)
        return subprocess.run([gpufault(), "inject", *where], capture_output=True, text=True, check=False, timeout=120)

    known = inject("cuda_illegal_address")
    assert known.returncode == 0, known.stderr
    new = inject("mine_stalled", "--timeout=2")  # the running daemon has not loaded it
    assert new.returncode == 1
    assert "does the daemon have the signature mine_stalled?" in new.stderr
    assert inject("nonsense").returncode == 2
    kernel = inject("nv_xid_79_fallen_off_bus")
    assert (kernel.returncode, "give --kmsg (needs root)" in kernel.stderr) == (2, True)
    lines = "gpufault_lines_matched_total"
    assert node.value(f'{lines}{{signature="gpufault_test_line",source="job"}}') == 1
    assert not node.value(f'{lines}{{signature="cuda_illegal_address",source="job"}}')
    counted = re.findall(r"^gpufault_incidents(?:_late)?_total{.*} (\S+)$", node.get("/metrics"), re.MULTILINE)
    assert {float(count) for count in counted} == {0.0}


PACK = """
pack: mine
signatures:
  - id: mine_stalled
    title: The ring stalled
    vendor: any
    layer: framework
    severity: error
    patterns: ['minecomm: ring \\d+ stalled']
    examples: ['minecomm: ring 4 stalled']
    near_misses: [{text: 'minecomm: ring is fine', why: it did not stall}]
    references: ['https://example.org']
    remediation: Restart the ring.
"""


@pytest.mark.parametrize("readers", ["everyone", "authenticated"])
def test_the_unknown_crashes_of_a_node_daemon_are_listed_for_those_who_may_read_lines(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], readers: str
) -> None:
    monkeypatch.setenv("GPUFAULT_WEB_READERS", readers)
    node = make_node(incidents={"settle": "1s"})
    node.start()
    (node.logs / "slurm-7.log").write_text("step\nsrun: error: gpu-07: task 3: Exited with exit code 13\n")
    eventually(lambda: '"srun_task_failed"' in node.get("/api/v1/incidents"))
    code = main(["unknowns", f"http://{node.address}"])
    told = capsys.readouterr()
    if readers == "everyone":
        assert (code, told.err) == (1, "")
        assert f"example: {node.logs}/slurm-7.log:2" in told.out
    else:
        assert (code, told.out) == (3, "")
        assert told.err == (
            f"gpufault unknowns: http://{node.address}: it shows log lines only to its users; pass --user and "
            "--password-file, or read the journal folder on the node\n"
        )
