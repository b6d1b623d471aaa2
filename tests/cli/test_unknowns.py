"""`gpufault unknowns`."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest

from exporter.cli.main import main
from tests.e2e.conftest import eventually
from tests.fleet.running import Fleet

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
    end = {"kind": "job_end", "time": "2026-11-20T10:00:00Z", "node": "n1", "signatures": ["unrecognised_crash"]}
    end |= {"job": "7", "outcome": "unrecognised"}
    (folder / "journal-000001.jsonl").write_text(f'{records}{json.dumps(end)}\n{{"signature": "unrecognised_crash"}}\n')
    assert main(["unknowns", "--format", "json", str(tmp_path / "journals")]) == 1
    captured = capsys.readouterr()
    assert [each["template"] for each in json.loads(captured.out)["clusters"]] == ["mesh.MeshError: no elements"]
    assert "1 line is not a record; skipped" in captured.err


def test_records_are_recognised_on_stdin_and_in_a_file_of_any_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["scan", "--format", "json", "--facts", "none", str(crash(tmp_path, "slurm-7.out", "no elements"))])
    records = tmp_path / "records"
    records.write_text(capsys.readouterr().out)
    assert main(["unknowns", str(records)]) == 1
    of_file = capsys.readouterr().out
    assert of_file.startswith("1. mesh.MeshError: no elements\n")
    with records.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["unknowns", "-"]) == 1
    assert capsys.readouterr().out == of_file


def test_without_an_unknown_crash_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    assert main(["unknowns", str(tmp_path / "x.log")]) == 0
    assert capsys.readouterr().out == "Every crash has a signature.\n"


REPORTS = {  # of a death, without the reason, by those who start programs
    "srun": "srun: error: gpu-07: task 3: Exited with exit code 13",
    "torchrun": "E0304 11:24:03.1 140 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 "
    "(pid: 77) of binary: /usr/bin/python",
    "a shell": "/var/spool/slurmd/job7/slurm_script: line 44: 231123 Aborted                 (core dumped) python train.py",
    "mpirun": "mpirun noticed that process rank 3 with PID 4711 on node gpu-07 exited on signal 6 (Aborted).",
    "mpiexec": "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 4711 RUNNING AT gpu-07\n=   EXIT CODE: 139",
}


@pytest.mark.parametrize("of", ["logs", "journals"])
@pytest.mark.parametrize("by", REPORTS)
def test_a_death_that_only_a_launcher_reports_is_an_unknown_crash(
    by: str, of: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "slurm-7.out"
    log.write_text(f"step 1\n{REPORTS[by]}\n")
    if of == "journals":
        assert main(["scan", "--format", "json", str(log)]) == 1
        (tmp_path / "journals").mkdir()
        (tmp_path / "journals/journal-000001.jsonl").write_text(capsys.readouterr().out)
    given = str(log if of == "logs" else tmp_path / "journals")
    assert main(["unknowns", given]) == 1
    shown = capsys.readouterr().out
    assert "Every crash has a signature" not in shown
    assert "1 crash on 1 node" in shown
    assert f"example: {log}:2" in shown
    assert main(["unknowns", "--format", "json", given]) == 1
    (cluster,) = json.loads(capsys.readouterr().out)["clusters"]
    assert cluster["begin_signature"] is None or cluster["kind"] != "report"


def test_a_report_behind_its_reason_is_not_a_crash_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slurm-7.out").write_text(
        "RuntimeError: CUDA error: an illegal memory access was encountered\n" + REPORTS["srun"] + "\n"
    )
    assert main(["unknowns", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "Every crash has a signature.\n"


def test_no_crash_is_not_every_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_text("step 1\n")
    assert main(["unknowns", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No crash found.\n"
    (tmp_path / "empty").mkdir()
    assert main(["unknowns", str(tmp_path / "empty")]) == 3
    assert capsys.readouterr() == ("", "gpufault unknowns: no log or journal found\n")


def test_the_path_of_an_example_can_be_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home/ann"
    home.mkdir(parents=True)
    log = crash(home, "slurm-7.out", "no elements")
    main(["unknowns", str(log)])
    main(["scan", str(log), str(home / "none.log")])
    captured = capsys.readouterr()
    assert f"example: {log}:4" in captured.out
    assert f"\n{log}:4:" in captured.out
    assert f"{home}/none.log: not read" in captured.err


def test_nothing_to_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unknowns", str(tmp_path / "none.log")]) == 3
    assert "none.log" in capsys.readouterr().err


def test_a_crash_that_was_recorded_again_is_one_and_packed_journals_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["scan", "--format", "json", "--facts", "none", str(crash(tmp_path, "slurm-7.out", "no elements"))])
    record = capsys.readouterr().out.encode()
    folder = tmp_path / "journals"
    folder.mkdir()
    (folder / "journal-000001.jsonl.gz").write_bytes(gzip.compress(record))
    (folder / "journal-000002.jsonl").write_bytes(record)
    assert main(["unknowns", "--format", "json", str(folder)]) == 1
    assert [each["count"] for each in json.loads(capsys.readouterr().out)["clusters"]] == [1]
    (folder / "journal-000004.jsonl").write_text(json.dumps({**json.loads(record), "id": ["no", "id"]}))
    assert main(["unknowns", "--format", "json", str(folder)]) == 1
    captured = capsys.readouterr()
    assert [each["count"] for each in json.loads(captured.out)["clusters"]] == [1]
    assert "1 line is not a record; skipped" in captured.err
    (folder / "journal-000004.jsonl").unlink()
    (folder / "journal-000002.jsonl").unlink()
    (folder / "journal-000003.jsonl.gz").write_bytes(gzip.compress(b"x" * 100_000)[:-9])
    assert main(["unknowns", str(folder)]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("1. mesh.MeshError: no elements\n")
    assert "journal-000003.jsonl.gz: is damaged" in captured.err


def test_nothing_is_said_of_what_was_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records.parquet").write_bytes(b"PAR1")
    for given, why in (
        (str(tmp_path), "records.parquet: Parquet is not supported here"),
        ("http://127.0.0.1:1", "is it a fleet service or a node daemon? (Connection refused)"),
    ):
        assert main(["unknowns", given]) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        assert why in captured.err


@pytest.mark.heavy
def test_a_fleet_service_is_asked_for_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "--format", "json", "--facts", "none", str(crash(tmp_path, "slurm-7.out", "element 7 is empty"))])
    record = json.loads(capsys.readouterr().out)
    folder = tmp_path / "journals"
    folder.mkdir()
    others = (
        {**record, "id": f"id-{n}", "node": f"n{n % 3}", "text": f"mesh.MeshError: element {n} is empty"}
        for n in range(1200)
    )
    (folder / "journal-000001.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in others))
    fleet = Fleet(tmp_path, f"--journal={folder}", f"--store.file={tmp_path}/store.duckdb", "--refresh.interval=1d")
    try:
        eventually(lambda: fleet.ask("/api/v1/incidents")[0] == 200 and fleet.json("incidents")["total"] == 1200)
        assert main(["unknowns", "--format", "json", f"http://{fleet.address}/"]) == 1
        (cluster,) = json.loads(capsys.readouterr().out)["clusters"]
        assert (cluster["template"], cluster["count"]) == ("mesh.MeshError: element <n> is empty", 1200)
        assert (cluster["nodes"], cluster["jobs"]) == (["n0", "n1", "n2"], ["7"])
        assert cluster["example"]["path"].startswith(f"http://{fleet.address}/incidents/id-")
    finally:
        fleet.process.terminate()
        fleet.process.wait(60)
