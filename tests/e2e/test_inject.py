"""`gpufault inject` where the daemon's endpoint has TLS and users."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.cli import inject
from exporter.cli.main import main

from .conftest import Guarded, Node, gpufault


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
