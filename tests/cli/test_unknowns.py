"""`gpufault unknowns`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from exporter.cli.main import main

TRACEBACK = 'Traceback (most recent call last):\n  File "/home/ann/train.py", line 4, in <module>\n'


def crash(tmp_path: Path, name: str, message: str) -> Path:
    log = tmp_path / name
    log.write_text(f"step 1\n{TRACEBACK}mesh.MeshError: {message}\n")
    return log


def test_logs_are_scanned_and_like_crashes_listed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        crash(tmp_path, f"slurm-{number}.out", f"element {number} of /scratch/ann/{number}/m.vtk is empty")
    assert main(["unknowns", str(tmp_path)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "1. mesh.MeshError: element <n> of <path> is empty"
    assert shown[1].startswith("   3 crashes on 1 node, 3 jobs; first ")
    assert shown[2] == f"   example: {tmp_path}/slurm-0.out:4"


def test_the_command_that_it_shows_begins_a_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = crash(tmp_path, "slurm-7.out", 'it\'s "gone" & empty')
    main(["unknowns", "--format", "json", str(log)])
    (cluster,) = json.loads(capsys.readouterr().out)["clusters"]
    program, *arguments = shlex.split(cluster["begin_signature"])
    assert (program, main(arguments)) == ("gpufault", 0)
    assert "mesh\\.MeshError" in capsys.readouterr().out


def test_records_of_a_scan_or_a_journal_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "--format", "json", "--facts", "none", str(crash(tmp_path, "slurm-7.out", "no elements"))])
    records = capsys.readouterr().out
    folder = tmp_path / "journals" / "n1"
    folder.mkdir(parents=True)
    (folder / "journal-000001.jsonl").write_text(f'{records}{{"signature": "unrecognised_crash"}}\n')
    assert main(["unknowns", "--format", "json", str(tmp_path / "journals")]) == 1
    captured = capsys.readouterr()
    assert [each["template"] for each in json.loads(captured.out)["clusters"]] == ["mesh.MeshError: no elements"]
    assert "1 lines are not records; they are left out" in captured.err


def test_without_an_unknown_crash_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    assert main(["unknowns", str(tmp_path / "x.log")]) == 0
    assert capsys.readouterr().out == "Every crash has a signature.\n"


def test_nothing_to_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unknowns", str(tmp_path / "none.log")]) == 3
    assert "none.log" in capsys.readouterr().err
