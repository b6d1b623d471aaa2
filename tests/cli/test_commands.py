"""The commands as their users type them: what they print, and how they end."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
import random
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from exporter.cli.explanation_text import SHOWN_RULES
from exporter.cli.incident_text import reports_brief
from exporter.cli.main import main
from exporter.config import packs
from exporter.core.text.yaml_text import parse
from exporter.scan.plan import Wanted
from exporter.scan.run import scan
from exporter.store.state import State

CRASH = (
    "Memory access fault by GPU node-4 (Agent handle: 0x55d1c3a0b5c0) on address 0x7f3b2c000000. "
    "Reason: Page not present or supervisor privilege.\n"
)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    log = tmp_path / "slurm-4242.out"
    log.write_text(f"step 1\n0: {CRASH}1: {CRASH}")
    return log


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress}


def test_scan_tells_people_what_crashed_and_ends_with_1(crashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(crashed)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{crashed}:2:")
    assert "rocr_memory_access_fault · 2 lines · 2 ranks · job 4242" in out
    assert "\x1b" not in out


def test_the_command_that_says_what_is_missing_reads_what_was_scanned(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = crashed.with_name("slurm 4242.out.gz")
    archive.write_bytes(gzip.compress(crashed.read_bytes()))
    hostile = crashed.with_name("slurm\n4242.out")
    hostile.write_bytes(crashed.read_bytes())
    main(["scan", str(crashed), str(archive), str(hostile)])
    offered = [line.strip() for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("$ ")]
    assert sorted(offered) == sorted([f"$ gpufault explain '{archive}:2'", f"$ gpufault explain {crashed}:2"])
    for command in offered:
        assert main(shlex.split(command)[2:]) == 0
        assert capsys.readouterr().out.startswith("line 2: ")


def test_the_command_that_says_what_is_missing_keeps_the_facts(
    crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text('{"os_name": "debian"}')
    main(["scan", "--facts", str(facts), str(crashed)])
    assert f"$ gpufault explain {crashed}:2 --facts {facts}\n" in capsys.readouterr().out


def test_the_command_that_says_what_is_missing_keeps_the_packs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "own.yaml"
    pack.write_text(
        "pack: own\nsignatures:\n  - {id: own_fault, title: Own, vendor: any, layer: library, severity: error, "
        "patterns: ['own: fatal'], examples: ['own: fatal']}\n"
        "root_causes:\n  - {id: own_cause, title: Own cause, signatures: [own_fault], when: {fact: kernel, equals: '1'}, "
        "verdict: unclear, strength: E, remediation: Act.}\n"
    )
    log = tmp_path / "slurm-1.out"
    log.write_text("own: fatal\n")
    main(["scan", "--signatures.dir", str(pack), str(log)])
    offered = [line.strip() for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("$ ")]
    assert offered == [f"$ gpufault explain {log}:1 --signatures.dir {pack}"]
    assert main(shlex.split(offered[0])[2:]) == 0
    assert capsys.readouterr().out.startswith("line 1: Own\n")


def test_several_incidents_end_with_a_table_and_summary_shows_only_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1, 4):
        (tmp_path / f"slurm-{number}.out").write_text(f"2025-11-2{number}T10:00:00Z step 1\n{CRASH}")
    (tmp_path / "slurm-9.out").write_text(
        "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2025-11-20T10:00:00 DUE TO TIME LIMIT ***\n"
    )
    assert main(["scan", str(tmp_path)]) == 1
    whole = capsys.readouterr().out
    assert main(["scan", "--summary", str(tmp_path)]) == 1
    table, _, total = capsys.readouterr().out.partition("\n\n")
    assert f"{table}\n" in whole
    assert total.startswith("4 incidents")
    brief = reports_brief(packs.load(), "rocr_memory_access_fault")
    assert "settled reports" in brief
    assert [line.split(maxsplit=5) for line in table.splitlines()[1:2]] == [
        ["3", "3", "unclear", "21", "Nov", f"23 Nov  unknown: GPU memory access fault ({brief})"]
    ]
    assert table.splitlines()[2].split() == [
        "1",
        "1",
        "workload",
        *["The", "job", "reached", "one", "of", "its", "limits"],
    ]


def test_quiet_leaves_the_exit_code(crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--quiet", str(crashed)]) == 1
    healthy = tmp_path / "healthy.log"
    healthy.write_text("step 1\n")
    assert main(["scan", "--quiet", str(healthy)]) == 0
    assert capsys.readouterr().out == ""


def test_scan_json_is_one_record_a_line(crashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--format", "json", str(crashed)]) == 1
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert record["kind"] == "incident"
    assert (record["line"], record["offset"], record["lines"]) == (2, 7, 2)
    assert record["job"] == {
        "id": "4242",
        "user": None,
        "rank": "0",
        "kind": "slurm",
        "confidence": "high",
        "method": "path",
    }
    assert (record["role"], record["caused_by"], record["root_cause"]) == ("root", None, "unknown")


def test_scan_tells_the_line_of_a_kernel_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "367.log"
    xid = "NVRM: Xid (PCI:0000:c1:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
    log.write_text(f"3,3970,1000000,-;fine\n SUBSYSTEM=pci\n3,3973,2000000,-;{xid}\n")
    assert main(["scan", str(log)]) == 1
    assert f"{log}:3:" in capsys.readouterr().out
    with log.open() as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        main(["explain"])
    assert capsys.readouterr().out.startswith("line 3: GPU has fallen off the bus")


OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
HOSTILE = "\x1bc\x1b(0\x9b31m\x08\x7f\u202e"  # each makes a terminal do something, after colours are taken off too


@pytest.mark.parametrize(
    "command",
    [["scan", "."], ["scan", ".", "--format=csv"], ["scan", ".", "--format=json"], ["explain", f"{HOSTILE} {OOM}"]],
    ids=" ".join,
)
def test_no_log_and_no_name_of_a_file_moves_a_terminals_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"a\n{HOSTILE}.log").write_text(f"{HOSTILE} {OOM}\n")
    (tmp_path / f"b\n{HOSTILE}.gz").write_text("no archive")
    main([*command, "--source=job"])
    told = capsys.readouterr()
    assert HOSTILE[-1].encode("ascii", "backslashreplace").decode() in told.out
    assert [line for line in [*told.out.splitlines(), *told.err.splitlines()] if not line.isprintable()] == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_terminal_without_utf8_shows_what_it_can(form: str, tmp_path: Path) -> None:
    (tmp_path / "é.log").write_text(f"“ü” {OOM}\n", encoding="utf-8")
    command = [sys.executable, "-m", "exporter.cli.main", "scan", ".", "--format", form]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"")
    if form == "json":
        assert json.loads(done.stdout)["path"] == "./é.log"
    else:
        assert done.stdout.startswith(b"./\\xe9.log:1:")


def test_a_folder_of_packs_that_is_not_there_is_no_typo_that_nobody_sees(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scan", str(crashed), "--signatures.dir", "/no/packs"]) == 2
    assert capsys.readouterr().err == "/no/packs:1:1: no such file or folder; correct the path\n"


def test_a_file_that_cannot_be_read_is_named_first(crashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(crashed), "--facts", "/no/facts\x1b.yaml"]) == 3
    assert capsys.readouterr().err == "gpufault: /no/facts\\x1b.yaml: No such file or directory\n"


def test_a_file_that_cannot_be_read_is_named_without_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run-hf_CANARYabcdefghijklmnop.gz").write_text("no archive")
    main(["scan", str(tmp_path)])
    told = capsys.readouterr().err
    assert "run-[redacted].gz: not read: " in told
    assert "CANARY" not in told


def test_no_log_becomes_a_formula_of_a_spreadsheet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, sign in enumerate(
        "=@"
    ):  # a line that begins with + or - is a diff's or a shell's, and counts as an echo
        (tmp_path / f"{number}.log").write_text(f"{sign}cmd {OOM}\n")
    main(["scan", str(tmp_path), "--format=csv", "--source=job"])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["text"][:6] for row in rows] == ["'=cmd ", "'@cmd "]


def test_scan_of_the_same_log_gives_the_same_ids(crashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = []
    for _ in range(2):
        main(["scan", "--format", "json", str(crashed)])
        ids.append(json.loads(capsys.readouterr().out)["id"])
    assert ids[0] == ids[1]


def test_scan_takes_a_crash_for_one_though_only_its_first_line_tells_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = "".join(f'  File "/srv/train.py", line {n}, in step\n' for n in range(40))
    log = tmp_path / "slurm-4242.out"
    log.write_text(f"2025-03-09 01:02:03 {CRASH}Traceback (most recent call last):\n{frames}{CRASH}")
    assert main(["scan", "--format", "json", str(log)]) == 1
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert record["lines"] == 2


def test_scan_reads_archives_folders_and_globs_once_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    openers = ((gzip.open, "a.log.gz"), (bz2.open, "b.log.bz2"), (lzma.open, "c.log.xz"), (zstd.open, "d.log.zst"))
    for opener, name in openers:
        with opener(tmp_path / name, "wt") as log:
            log.write(CRASH)
    assert main(["scan", "--format", "json", str(tmp_path), str(tmp_path / "*.gz")]) == 1
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(r["path"]).name for r in records] == ["a.log.gz", "b.log.bz2", "c.log.xz", "d.log.zst"]


def test_scan_with_workers_gives_what_one_process_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        (tmp_path / f"slurm-{number}.out").write_text(CRASH)
    answers = []
    for workers in ("1", "2"):
        assert main(["scan", "--format", "json", "--workers", workers, str(tmp_path)]) == 1
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        answers.append([{k: v for k, v in r.items() if k not in ("time", "last_time")} for r in records])
    assert answers[0] == answers[1]


def test_a_warning_that_is_no_crash_is_noted_and_is_no_incident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "slow.log"
    log.write_text(
        "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx90a68.kdb Performance may degrade\n"
    )
    assert main(["scan", "--format", "json", str(log)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["signature"], record["role"], record["line"]) == ("miopen_missing_system_db", "context", 1)
    assert main(["scan", str(log)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("noted, no crash: MIOpen's databases or kernels are not installed\n")
    assert "0 incidents" in told


def test_scan_says_what_it_could_not_read_and_goes_on(crashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(crashed), "/nowhere/x.log"]) == 1
    assert "/nowhere/x.log: not read: No such file or directory" in capsys.readouterr().err
    assert main(["scan", "/nowhere/x.log"]) == 3


def test_what_could_not_be_read_is_named_at_once_and_counted(
    crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not kept until the end: a folder may hold a million of them."""
    reported: list[str] = []
    logs = [Wanted(f"/nowhere/{number}.log") for number in range(3)]

    def asked_for() -> Iterator[Wanted]:
        for number, log in enumerate(logs):
            assert reported == [log.path for log in logs[:number]]
            yield log

    summary = scan(
        asked_for(), packs.load(), node="n", facts={}, report_unread=lambda unread: reported.append(unread.path)
    )
    assert (summary.unread, summary.files) == (3, 0)
    assert main(["scan", "--format", "json", "/nowhere/x.log", str(tmp_path / "y.log"), str(crashed)]) == 1
    assert capsys.readouterr().err.splitlines()[2:] == [
        "gpufault scan: 2 files could not be read completely, see above"
    ]


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_damaged_archive_is_told_of_and_the_rest_goes_on(
    ending: str, crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = PACKERS[ending](CRASH.encode() * 1000)
    for name, data in (("cut", packed[: len(packed) // 2]), ("garbled", packed[:30] + b"x" * 30)):
        damaged = tmp_path / f"{name}.log.{ending}"
        damaged.write_bytes(data)
        assert main(["scan", str(damaged), str(crashed)]) == 1
        told = capsys.readouterr()
        assert [line.partition(": ")[0] for line in told.err.splitlines()] == [str(damaged)]
        assert "1 file could not be read completely, see stderr" in " ".join(told.out.split())
    (tmp_path / f"empty.{ending}").write_bytes(b"no archive at all")
    assert main(["scan", str(tmp_path / f"empty.{ending}")]) == 3


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_what_stands_before_the_damage_of_an_archive_is_read(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small one too: libraries' files drop what they have unpacked in the call that meets the damage."""
    whole, hurt = PACKERS[ending](CRASH.encode()), PACKERS[ending](random.Random(1).randbytes(1000))
    hurts = {"cut": hurt[:-9], "garbled": hurt[:4] + b"x" * 20 + hurt[24:], "foreign": b"x" * 99}
    for name, data in ((name, whole + hurt) for name, hurt in hurts.items()):
        damaged = tmp_path / f"{name}.log.{ending}"
        damaged.write_bytes(data)
        assert main(["scan", "--format", "json", str(damaged)]) == 1
        told = capsys.readouterr()
        (record,) = map(json.loads, told.out.splitlines())
        assert (record["line"], record["lines"]) == (1, 1)
        assert told.err.startswith(f"{damaged}: not read: is damaged: ")


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_a_last_line_that_damage_cuts_short_is_looked_at(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / f"cut.log.{ending}"
    damaged.write_bytes(PACKERS[ending](CRASH.removesuffix("\n").encode())[:-4])  # only checksums and lengths are gone
    assert main(["scan", "--format", "json", str(damaged)]) == 1
    told = capsys.readouterr()
    assert (told.out.count("rocr_memory_access_fault"), told.err.count("is damaged")) == (1, 1)


def test_a_scan_that_is_stopped_tells_what_it_found(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"slurm-{number}.out").write_text(CRASH)
    logs = [str(tmp_path / f"slurm-{number}.out") for number in range(4)]

    def stop(path: str, size: int) -> None:
        if path == logs[2] and size:
            signal.raise_signal(signal.SIGINT)

    stopped = scan((Wanted(log) for log in logs), packs.load(), node="n", facts={}, progress=stop)
    assert (stopped.stopped_at, stopped.files) == (logs[2], 3)
    assert [d.incident.first.path for d in stopped.diagnoses] == logs[:3]


def test_scan_of_a_log_without_crashes_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = tmp_path / "quiet.log"
    quiet.write_text("$ git grep hipErrorInvalidValue\n")
    assert main(["scan", str(quiet)]) == 0
    assert capsys.readouterr().out.startswith("0 incidents")


def test_scan_takes_a_log_on_stdin(crashed: Path) -> None:
    command = [sys.executable, "-m", "exporter.cli.main", "scan", "--format", "json", "-"]
    done = subprocess.run(command, input=crashed.read_bytes(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["signature"] == "rocr_memory_access_fault"


def test_facts_file_with_a_nested_value_is_refused_with_its_place(
    crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "facts.yaml"
    facts.write_text("os: debian 12\nrocm_version: [6.2]\n")
    assert main(["scan", "--facts", str(facts), str(crashed)]) == 2
    assert capsys.readouterr().err == f"{facts}:2:1: rocm_version: must be text, not a list\n"


def test_explain_tells_the_fact_that_would_decide_and_how_to_find_it_out(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        ":0:rocdevice.cpp            :2984: 6545699276902 us: [pid:196431 tid:0x7f2301dff640] Callback: Queue 0x7f2301400000 "
        "aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory. code: 0x29"
    )
    assert main(["explain", line]) == 0
    out = capsys.readouterr().out
    assert "hsa_aperture_violation: matches" in out
    assert "(network_home_cache_unwritable), if home_fs_type is one of nfs" in " ".join(out.split())
    assert "$ findmnt -no FSTYPE -T ~" in out
    assert "--facts FILE" in out


def test_a_fact_with_a_typing_error_is_refused_and_a_sites_own_is_not(
    crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "facts.yaml"
    facts.write_text("rack: r12\nroc_version: 6.2.1\nenv.MY_OWN: 1\n")
    for command in ("scan", "explain"):
        assert main([command, "--facts", str(facts), str(crashed)]) == 2
        assert capsys.readouterr().err == f"{facts}:2:1: roc_version: unknown fact; did you mean rocm_version?\n"
    facts.write_text("rack: r12\nrocm_version: 6.2.1\nroc_version: mine\n")
    assert main(["explain", "--facts", str(facts), str(crashed)]) == 0


def test_explain_tells_more_of_a_log_when_it_is_asked_to(
    crashed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags, told in (([], False), (["--details"], True)):
        with crashed.open() as log:
            monkeypatch.setattr("sys.stdin", log)
            assert main(["explain", *flags]) == 0
        out = capsys.readouterr().out
        assert ("rocr_memory_access_fault: matches" in out) is told
        assert ("? fact env.HSA_XNACK = 0" in out) is told


def test_explain_says_of_a_log_without_faults_how_many_lines_looked_like_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = tmp_path / "quiet.log"
    quiet.write_text("step 1\nHIP error handling is on\n")
    with quiet.open() as log:
        monkeypatch.setattr("sys.stdin", log)
        assert main(["explain"]) == 0
    assert capsys.readouterr().out == (
        "No line shows a fault. Lines with words of a fault: 1 of 2; --details shows why none counts.\n"
    )


def test_explain_takes_a_log_and_the_number_of_a_line(crashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(crashed)]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith("line 2: ")
    for number in (2, 3):  # of the same incident
        assert main(["explain", f"{crashed}:{number}"]) == 0
        assert capsys.readouterr().out == whole
    assert main(["explain", f"{crashed}:1"]) == 0
    assert capsys.readouterr().out == "Line 1 is not in an incident. Incidents begin at line 2.\n"


@pytest.mark.parametrize("missing", ["nosuch.log", "nosuch.log:7", "jobs/slurm-1.out", "/scratch/nosuch"])
def test_explain_of_a_file_that_is_not_there_is_an_error(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", missing]) == 3
    assert capsys.readouterr().err == f"gpufault: {missing}: no such file\n"


def test_facts_of_a_root_that_is_not_there_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", "--path.rootfs", "/no/such/root"]) == 3
    assert capsys.readouterr().err == "gpufault: --path.rootfs: /no/such/root is not a folder\n"


def test_explain_says_why_a_kernels_line_in_a_jobs_log_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "slurm-1.out"
    log.write_text(
        "step 1\nnode1 kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"
    )
    assert main(["explain", f"{log}:2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Line 2 is not in an incident. Incidents begin at line 3.\n\nThe log is read as a job's")
    assert "By itself, line 2\nreads as follows" in out
    assert "(Xid 79)" in out


def test_explain_of_a_quote_names_the_echo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"+ echo '{CRASH.strip()}'"]) == 0
    assert "the line only quotes it" in capsys.readouterr().out


def test_a_signature_that_cannot_be_disabled_is_told_at_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("signatures:\n  disable:\n    - nv_xid_43*\n    - nv_xid_999*\n")
    assert main(["run", "--config.check", "--config.file", str(config)]) == 2
    assert capsys.readouterr().err == (
        f"{config}:4:7: signatures.disable[1]: no signature is 'nv_xid_999*'; see `gpufault signatures list`\n"
    )
    config.write_text("signatures:\n  disable: [torch_ooom]\n")
    assert main(["run", "--config.check", "--config.file", str(config)]) == 2
    assert capsys.readouterr().err.endswith("no signature is 'torch_ooom'; did you mean torch_oom?\n")
    config.write_text("signatures:\n  disable:\n    - nv_xid_43*\n    - nv_xid_999*\n")
    main(["doctor", "--config.file", str(config)])
    assert "signatures.disable[1]: no signature is 'nv_xid_999*'" in capsys.readouterr().out


def test_a_pack_is_begun_with_a_line_and_told_what_knows_the_line_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["signatures", "new", "[  812.114093] acme 0000:c1:00.0: tile 3 hang"]) == 0
    pack = tmp_path / "acme.yaml"
    told = capsys.readouterr()
    assert told.err == ""
    pack.write_text(told.out)
    assert main(["signatures", "check", str(pack)]) == 2
    assert f"{pack}:5:5: signatures[0].title: is still the placeholder" in capsys.readouterr().out
    pack.write_text(told.out.replace("TODO: what happened", "what happened").replace("TODO: what to do", "what to do"))
    assert main(["signatures", "check", str(pack)]) == 0
    assert main(["explain", "--signatures.dir", str(pack), "[ 1.000000] acme 0000:03:00.0: tile 12 hang"]) == 0
    assert "line 1: what happened, in a few words" in capsys.readouterr().out
    assert main(["signatures", "new", OOM]) == 0
    assert "torch_oom matches this line already" in capsys.readouterr().err
    assert main(["signatures", "new", "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."]) == 0
    told = capsys.readouterr()
    assert "nv_xid_79_fallen_off_bus matches this line already" in told.err
    assert "sources: [kernel]" in told.out


def test_a_line_of_another_wording_is_left_out_of_a_draft_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signatures", "new", "acme: tile 3 hang", "acme: tile 4 hang", "quux: transport lost"]) == 0
    told = capsys.readouterr()
    assert told.err == (
        "left out, since its wording differs: quux: transport lost; draft a signature of its own for it\n"
    )
    assert "tile 4" in told.out
    assert "quux" not in told.out


def test_what_stands_in_the_place_of_a_cause_is_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signatures", "show", "unknown"]) == 0
    assert capsys.readouterr().out.startswith("unknown: ")


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_explain_takes_a_line_that_was_copied_without_its_stamp_for_the_kernels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", XID]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Read as a kernel log. In a job's log this does not count")
    assert "gpu_lost_from_pcie" in told
    assert main(["explain", f"[  812.114093] {XID}"]) == 0
    assert capsys.readouterr().out.startswith("line 1: GPU has fallen off the bus")


def test_explain_of_a_line_that_counts_elsewhere_names_some_of_what_it_would_show_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "--source", "job", XID]) == 0
    told = capsys.readouterr().out
    assert told.startswith("No line shows a fault")
    (elsewhere,) = [line for line in told.splitlines() if "counts only in kernel logs: " in line]
    assert elsewhere.count(",") == SHOWN_RULES - 1
    assert re.search(r" and \d\d more$", elsewhere)


def test_signatures_can_be_listed_shown_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signatures", "list"]) == 0
    assert "intel_gpu_page_fault" in capsys.readouterr().out
    assert main(["signatures", "show", "intel_gpu_page_fault"]) == 0
    assert "onednn_pvc_scoreboard_hazard" in capsys.readouterr().out
    assert main(["signatures", "show", "page_fault"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main(["signatures", "show", "torch_ooom"]) == 2
    assert "did you mean torch_oom?" in capsys.readouterr().err
    assert main(["signatures", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Pack"


def test_a_pack_of_ones_own_is_checked_and_used(
    tmp_path: Path, crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "mine.yaml"
    pack.write_text(
        "pack: mine\nsignatures:\n  - {id: my_step, title: A step, vendor: any, layer: host, severity: info, patterns: ['x']}\n"
    )
    assert main(["signatures", "check", str(pack)]) == 2
    assert capsys.readouterr().out.startswith(f"{pack}:3:")
    pack.write_text(
        "pack: mine\nsignatures:\n  - id: my_step\n    title: A step\n    vendor: any\n    layer: host\n    severity: info\n"
        "    patterns: ['^step \\d+$']\n    examples: ['step 1']\n    near_misses: ['a step 1']\n"
    )
    assert main(["scan", "--signatures.dir", str(pack), "--format", "json", str(crashed)]) == 1
    assert "my_step" in {json.loads(line)["signature"] for line in capsys.readouterr().out.splitlines()}


OWN_PACK = """\
pack: mine
signatures:
  - id: my_step
    title: A step
    vendor: any
    layer: host
    severity: info
    patterns: ['^step \\d+$']
    examples: ['step 1']
"""


@pytest.fixture
def own_pack(tmp_path: Path) -> Path:
    pack = tmp_path / "mine.yaml"
    pack.write_text(OWN_PACK)
    return pack


def test_check_ends_with_0_for_warnings_and_with_2_where_it_is_strict(
    own_pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["signatures", "check", str(own_pack)]) == 0
    shown = capsys.readouterr()
    assert shown.out == (
        f"{own_pack}:3:5: signatures[0]: my_step has no near_misses; add a similar line that must not match (warning)\n"
        f"{own_pack}:8:16: signatures[0].patterns[0]: is tried on each line with 'step', as about one of 6,667 words is in "
        "ordinary text; give it a longer fixed text, or spell out what follows: level=(?:fatal|panic) rather than level=\\w+ "
        "(warning)\n"
    )
    assert shown.err == "1 signature, 0 root causes: 0 errors, 2 warnings\n"
    assert main(["signatures", "check", "--strict", str(own_pack)]) == 2


def test_diff_tells_what_packs_add_change_and_leave_out(own_pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = own_pack.with_name("other.yaml")
    other.write_text(OWN_PACK.replace("my_step", "my_other_step"))
    assert main(["signatures", "diff", str(own_pack), str(own_pack)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["signatures", "diff", str(own_pack), str(other)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told] == [
        "added    signature my_other_step",
        "removed  signature my_step",
    ]
    other.write_text(OWN_PACK.replace("severity: info", "severity: critical"))
    assert main(["signatures", "diff", str(own_pack), str(other)]) == 1
    assert capsys.readouterr().out == "changed  signature my_step: severity\n"


def test_diff_of_a_pack_beside_the_built_in_ones_shows_what_the_pack_does(
    own_pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["signatures", "diff", "builtin", str(own_pack)]) == 1
    told = capsys.readouterr()
    assert told.out == "added    signature my_step: A step\n"
    assert told.err == f"{own_pack}, beside the built-in packs: adds 1, replaces 0, shadows 0, overlaps 0\n"
    assert main(["signatures", "diff", str(own_pack), "builtin"]) == 2
    assert capsys.readouterr().err == (f"gpufault signatures diff: name builtin first: diff builtin {own_pack}\n")


def test_check_of_a_path_that_is_not_there_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signatures", "check", str(tmp_path / "none.yaml")]) == 2
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/none.yaml:1:1: no such file or folder; correct the path\n"
    assert told.err == "no pack could be read: 1 error, 0 warnings\n"


@pytest.mark.parametrize("verb", [["check"], ["test"], ["docs"], ["diff", "builtin"]])
def test_a_folder_without_packs_is_an_error(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("no pack")
    assert main(["signatures", *verb, str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert f"{tmp_path}:1:1: the folder has no packs; name one with .yaml files\n" in told.out + told.err


FAULTY_PACK = """\
pack: many
signatures:
  - {id: one_fault, title: one, title: again, vendor: any, layer: host, severity: error, patterns: ['one fault']}
  - {id: two_fault, title: two, vendor: amdd, layer: host, severity: error, patterns: ['two fault (?P<code>.+)']}
  - {id: three_fault, title: 'TODO: three', vendor: any, layer: host, severity: error, patterns: ['three fault'],
     examples: ['four fault'], near_misses: [three], follows: [two_fault, torch_ooom]}
root_causes:
  - {id: a_cause, title: a cause, signatures: [three_fault], when: {capture: code, equals: '3'},
     verdict: workload, strength: A, remediation: Fix it.}
  - {id: b_cause, title: b cause, signatures: [two_fault], when: {capture: code, equals: '3'},
     verdict: workload, strength: A, remediation: Fix it.}
"""


def test_check_reports_the_errors_of_all_stages_of_all_files_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "many.yaml").write_text(FAULTY_PACK)
    (tmp_path / "other.yaml").write_bytes(b"\xff")
    assert main(["signatures", "check", str(tmp_path / "many.yaml")]) == 2
    told = capsys.readouterr()
    assert [line.split(": ")[:2] for line in told.out.splitlines()] == [
        [f"{tmp_path}/many.yaml:3:33", "signatures[0].title"],
        [f"{tmp_path}/many.yaml:4:33", "signatures[1].vendor"],
        [f"{tmp_path}/many.yaml:5:23", "signatures[2].title"],
        [f"{tmp_path}/many.yaml:6:17", "signatures[2].examples[0]"],
        [f"{tmp_path}/many.yaml:6:75", "signatures[2].follows[1]"],
        [f"{tmp_path}/many.yaml:8:69", "root_causes[0].when.capture"],
    ]
    assert told.err == "3 signatures, 2 root causes: 6 errors, 0 warnings\n"
    assert main(["signatures", "check", str(tmp_path)]) == 2
    of_folder = capsys.readouterr().out.splitlines()
    assert f"{tmp_path}/other.yaml:1:1: not UTF-8 text; save it as UTF-8, or remove it" in of_folder
    assert len(of_folder) == 5  # what torch_ooom and the captures are, the other file may say


def test_the_daemon_gets_all_errors_of_a_pack_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "many.yaml").write_text(FAULTY_PACK)
    assert main(["scan", "--signatures.dir", str(tmp_path), str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 6


@pytest.mark.heavy
def test_test_runs_all_promises_and_shows_what_fails_with_its_place(
    own_pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["signatures", "test", str(own_pack)]) == 0
    assert capsys.readouterr().out == (
        "1 example and 0 near misses with hyperscan and python: all hold\n"
        "examples of the built-in packs beside them: all hold\n"
    )
    own_pack.write_text(OWN_PACK.replace("step 1'", f"step 1', '{CRASH.strip()}'"))
    assert main(["signatures", "test", str(own_pack)]) == 1
    *told, total, of_builtin = capsys.readouterr().out.splitlines()
    assert told == [
        f"{own_pack}:9:26: my_step",
        f"  line    {CRASH.strip()}",
        (
            "  wrong   example does not match my_step: no line contains a required literal ('step'); fix a pattern or the "
            "example"
        ),
        "  shows   rocr_memory_access_fault",
        "  engine  hyperscan, python",
    ]
    assert total == "2 examples and 0 near misses with hyperscan and python: 1 does not hold"
    assert of_builtin == "examples of the built-in packs beside them: all hold"


@pytest.mark.heavy
def test_examples_of_a_replaced_signature_are_not_tested(own_pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_pack.write_text(OWN_PACK.replace("my_step", "intel_gpu_page_fault") + "    override: true\n")
    assert main(["signatures", "test", str(own_pack)]) == 0
    assert capsys.readouterr().out.endswith("beside them: all hold\n")


def test_a_built_in_signature_is_replaced_only_where_the_pack_says_so_and_list_shows_it(
    own_pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = OWN_PACK.replace("my_step", "intel_gpu_page_fault")
    own_pack.write_text(text)
    assert main(["signatures", "list", "--signatures.dir", str(own_pack)]) == 2
    assert capsys.readouterr().err == (
        f"{own_pack}:3:5: signatures[0].id: intel_gpu_page_fault is built in; choose another id, or add "
        "`override: true` to replace it\n"
    )
    own_pack.write_text(text + "    override: true\n")
    assert main(["signatures", "list", "--layer", "host", "--signatures.dir", str(own_pack)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("intel_gpu_page_fault ")]
    assert line.endswith("A step (pack mine, in the place of the built-in one)")
    assert main(["signatures", "show", "intel_gpu_page_fault", "--signatures.dir", str(own_pack)]) == 0
    assert capsys.readouterr().out.startswith(f"# defined in {own_pack}:3, in the place of ")


def test_list_can_be_narrowed_and_read_by_programs(capsys: pytest.CaptureFixture[str]) -> None:
    narrowed = ["--vendor", "intel", "--layer", "runtime", "--severity", "error"]
    assert main(["signatures", "list", *narrowed, "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(row["vendor"], row["layer"], row["severity"]) for row in rows} == {("intel", "runtime", "error")}
    assert "intel_gpu_page_fault" in {row["id"] for row in rows}


def test_docs_are_written_where_they_are_asked_for_and_strays_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone.md").write_text("of a signature that was renamed")
    assert main(["signatures", "docs", "--out", str(tmp_path)]) == 0
    assert f"{tmp_path}/gone.md: of no signature; remove it" in capsys.readouterr().err
    page = (tmp_path / "intel_gpu_page_fault.md").read_text()
    assert page.index("## What to do first") < page.index("## What explains it") < page.index("## What it looks like")
    assert '<a id="onednn_pvc_scoreboard_hazard"></a>' in page


def test_docs_of_an_own_pack_are_its_pages_only_and_link_to_no_other(
    own_pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_pack.write_text(
        OWN_PACK + "    yields_to: [torch_oom]\n    follows: [torch_oom]\n"
        "root_causes:\n  - {id: my_cause, title: my cause, signatures: [nv_xid_79_fallen_off_bus], verdict: workload,\n"
        "     strength: A, remediation: Mend it.}\n"
    )
    out = tmp_path / "pages"
    assert main(["signatures", "docs", str(own_pack), "--out", str(out)]) == 0
    assert capsys.readouterr().err == f"2 signature pages and an index in {out}\n"
    assert {path.name for path in out.iterdir()} == {"README.md", "my_step.md", "nv_xid_79_fallen_off_bus.md"}
    assert "[my_step](my_step.md)" in (out / "README.md").read_text()
    links = {link for path in out.iterdir() for link in re.findall(r"\]\(([^)#]+\.md)", path.read_text())}
    assert {link for link in links if not (out / link).exists()} == set()
    assert '<a id="my_cause"></a>' in (out / "nv_xid_79_fallen_off_bus.md").read_text()


def test_the_schema_takes_every_built_in_pack_and_describes_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signatures", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for name, text in packs.builtin():
        assert [f"{name}: {error.message}" for error in validator.iter_errors(parse(text, name).data)] == []
    undescribed = [
        f"{title}.{key}"
        for title, model in {"Pack": schema, **schema["$defs"]}.items()
        for key, value in model.get("properties", {}).items()
        if "description" not in value
    ]
    assert undescribed == []


def test_doctor_tells_what_works_and_what_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    missing = tmp_path / "missing"
    config.write_text(
        f"state_dir: {tmp_path}/state\nsources:\n  - {{kind: files, paths: ['{tmp_path}/*.log']}}\n"
        f"  - {{kind: kmsg, mode: file, path: {missing}}}\n"
    )
    assert main(["doctor", "--config.file", str(config)]) == 1
    out = capsys.readouterr().out
    assert "ok    source files" in out
    assert f"bad   source kmsg:{missing}" in out


def test_doctor_refuses_a_kernel_log_in_text_form_and_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, log = tmp_path / "config.yaml", tmp_path / "kern.log"
    log.write_text("Nov 26 16:04:39 gpu-7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    config.write_text(f"state_dir: {tmp_path}/state\nsources: [{{kind: kmsg, mode: file, path: {log}}}]\n")
    assert main(["doctor", "--config.file", str(config)]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if "not records in the form of /dev/kmsg" in line]
    assert [line.split()[0] for line in told] == ["bad"]


def test_doctor_holds_the_promises_against_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, web, config = tmp_path / "state", tmp_path / "web.yaml", tmp_path / "config.yaml"
    config.write_text(f"state_dir: {state}\nsources:\n  - {{kind: files, paths: ['{tmp_path}/*.log']}}\n")
    web.write_text("basic_auth_users: {}\n")

    def told(code: int) -> str:
        assert main(command) == code
        return "\n".join(" ".join(line.split()) for line in capsys.readouterr().out.splitlines())

    command = ["doctor", "--config.file", str(config), "--web.config.file", str(web)]
    out = told(0)
    assert "ok state none yet: this would be the first start" in out
    assert f"ok web {web}: " in out
    with closing(State(state)):  # a daemon that runs: what it has written is not all in the file itself
        assert "ok state schema 1; this gpufault writes 1" in told(0)
    with sqlite3.connect(state / "state.sqlite") as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA user_version = 99")
    db.close()
    (state / "state.sqlite").chmod(0o644)
    web.write_text("basic_auth_users: {alice: secret}\n")
    out = told(1)
    assert f"bad state {state}/state.sqlite has schema 99, this gpufault supports 1; upgrade" in out
    assert f"bad state folder {state}/state.sqlite is open to other users" in out
    assert f"bad web {web}:1:" in out
    assert "basic_auth_users.alice: not a bcrypt hash" in out
    assert "secret" not in out


@pytest.mark.parametrize(("watch", "told"), [("auto", "0 files\n"), ("poll", "0 files, watch mode poll: a new one is")])
def test_doctor_says_where_a_new_log_is_not_seen_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], watch: str, told: str
) -> None:
    config = tmp_path / "config.yaml"
    source = f"{{kind: files, paths: ['{tmp_path}/*.log'], watch: {watch}}}"
    config.write_text(f"state_dir: {tmp_path}/state\nsources: [{source}]\n")
    main(["doctor", "--config.file", str(config)])
    assert f"can be read, {told}" in capsys.readouterr().out


def test_help_loads_no_library_that_a_command_needs() -> None:
    code = (
        "import sys, exporter.cli.main as m\n"
        "try: m.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'pydantic', 'regex', 'yaml', 'uvicorn', 'hyperscan', 'structlog'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "[]\n"


def test_a_wrong_command_ends_with_2_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["frobnicate"])
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "command", "why"),
    [
        ("GPUFAULT_LOG_LEVEL", "verbose", ["run"], "invalid choice: 'verbose' (choose from debug, info, warning, error)"),
        ("GPUFAULT_LOG_FORMAT", "xml", ["run"], "invalid choice: 'xml' (choose from logfmt, json)"),
        ("GPUFAULT_LOG_FORMAT", "", ["fleet"], "invalid choice: '' (choose from logfmt, json)"),
        ("GPUFAULT_DASK_ADDRESS", "zz", ["scan", "-"], "'zz' is not the address of a scheduler; write for example tcp://HOST:8786"),
    ],
)  # fmt: skip
def test_a_wrong_environment_variable_is_refused_as_a_wrong_flag_is(
    variable: str,
    value: str,
    command: list[str],
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"{variable}: {why}\n")


def test_a_flag_overrides_a_wrong_environment_variable_and_is_named_where_it_is_wrong_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUFAULT_LOG_LEVEL", "verbose")
    config = tmp_path / "config.yaml"
    config.write_text("sources: [{kind: kmsg}]\n")
    assert main(["run", "--config.check", "--config.file", str(config), "--log.level=info"]) == 0
    with pytest.raises(SystemExit):
        main(["run", "--log.level=bad"])
    assert "GPUFAULT_LOG_LEVEL" not in capsys.readouterr().err.splitlines()[-1]


def test_a_check_of_the_configuration_tells_which_folders_of_logs_do_not_exist(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"sources: [{{kind: files, paths: [{tmp_path}/*.out, {tmp_path}/scratch/*/slurm-*.out]}}]\n")
    assert main(["run", "--config.check", "--config.file", str(config)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{config} is valid: 1 source, ")
    assert said.err == f"note: {tmp_path}/scratch does not exist here; until it does, no log is read from it\n"


@pytest.mark.parametrize("command", ["run --config.fil=x", "scan --forma=json x", "signatures check --stri"])
def test_flags_are_not_abbreviated(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_explain_reads_the_dumps_of_flight_recorders_beside_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "[rank0]:[E1104 14:02:11.000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds "
        "before timing out.\n"
    )
    for rank, state in enumerate(("started", "completed")):
        entry = {
            "process_group": ["0", ""],
            "collective_seq_id": 12 - rank,
            "profiling_name": "nccl:all_reduce",
            "state": state,
        }
        content = {"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [entry]}
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(content))
    os.mkfifo(tmp_path / "nccl_trace_rank_2")
    assert main(["explain", str(log)]) == 0
    out, err = capsys.readouterr()
    assert "recorder   group 0: rank 1 finished all_reduce 11, and has not called the next" in out
    assert "recorder   group 0: rank 0 waits in all_reduce 12" in out
    assert "nccl_trace_rank_2: not read: " in err


def test_times_without_a_zone_are_read_in_the_local_zone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("2026-03-04 11:24:01,114 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    command = [sys.executable, "-m", "exporter.cli.main", "scan", "--format=json", str(log)]
    done = subprocess.run(command, env={**os.environ, "TZ": "XYZ5"}, check=False, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[0])["time"].startswith("2026-03-04T16:24:01")
