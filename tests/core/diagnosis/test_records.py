"""The records of journal and scan: every field of the contract, nothing that cannot be written, no secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.core.diagnosis.diagnose import diagnose
from exporter.core.diagnosis.records import (
    MAX_TEXT,
    facts_record,
    heartbeat_record,
    incident_record,
    line,
    location_of,
    rfc3339,
)
from exporter.core.facts.gpus import Gpu
from exporter.core.model import Job, Match, Moment
from tests.support.matches import NOW, catalogue_of, entries, match

CATALOGUE = catalogue_of("""
signatures:
  - {id: gpu_fault, sources: [job, kernel], vendor: amd, layer: runtime, severity: critical, patterns: ['aaaa']}
root_causes:
  - {id: bad_home, signatures: [gpu_fault], verdict: infrastructure, remediation: Mount it., references: [ref],
     when: {all: [{fact: home_fs_type, equals: nfs, why: 'no locks'}, {capture: path, exists: true}]}}
""")
FACTS = {"home_fs_type": "nfs"}


def record(*matches: Match, **how: Any) -> dict[str, Any]:
    (entry,) = entries(*matches)
    return incident_record(diagnose(entry, [], entry, FACTS, CATALOGUE, "gpu-7"), CATALOGUE, "gpu-7", **how)


FAULT = match(
    "gpu_fault", 0.25, path="/home/ada/slurm-7.out", line=12, offset=345, text="fault of /home/ada", rank="3",
    captures={"path": "/home/ada/.cache", "api": "hipMalloc"}, gpu="0000:01:00.0",
    job=Job(id="7", kind="slurm", user="ada", rank="9", confidence="high"),
)  # fmt: skip


def test_a_kernel_record_is_placed_by_its_line_or_else_by_the_kernels_number() -> None:
    in_file = record(match("gpu_fault", source="kernel", path="/k.log", line=3, offset=37, seq=904))
    assert (in_file["line"], in_file["offset"], in_file["record"]) == (3, 37, 904)
    assert location_of(in_file) == "/k.log:3"
    in_ring = record(match("gpu_fault", source="kernel", path="/dev/kmsg", line=0, offset=37, seq=904))
    assert (in_ring["line"], in_ring["offset"], in_ring["record"]) == (None, None, 904)
    assert location_of(in_ring) == "/dev/kmsg record 904"
    in_syslog = record(match("gpu_fault", source="kernel", path="/dev/kmsg", line=0))
    assert location_of(in_syslog) == "/dev/kmsg"


def test_an_incident_has_every_field_of_the_contract() -> None:
    told = record(FAULT, match("gpu_fault", 5, rank="10", text="more"))
    assert told.pop("id") == record(FAULT)["id"]
    assert told == {
        "kind": "incident",
        "time": "2023-11-14T22:13:20.250Z",
        "time_source": "log",
        "node": "gpu-7",
        "signature": "gpu_fault",
        "root_cause": "bad_home",
        "severity": "critical",
        "vendor": "amd",
        "layer": "runtime",
        "source": "job",
        "path": "/home/[user]/slurm-7.out",
        "line": 12,
        "offset": 345,
        "lines": 2,
        "last_time": "2023-11-14T22:13:25.000Z",
        "text": "fault of /home/[user]",
        "captures": {"api": "hipMalloc", "path": "/home/[user]/.cache"},
        "gpu": "0000:01:00.0",
        "job": {"id": "7", "user": "ada", "rank": "3", "kind": "slurm", "confidence": "high", "method": "path"},
        "ranks": ["3", "10"],  # as numbers
        "role": "root",
        "caused_by": None,
        "domain": "unknown",
        "restart": "elsewhere",
        "verdict": "infrastructure",
        "evidence": [
            {"what": "fact home_fs_type", "value": "nfs", "why": "no locks"},
            {"what": "capture path", "value": "/home/[user]/.cache", "why": ""},
        ],
        "remediation": "Mount it.",
        "references": ["ref"],
        "same_time": [],
        "excerpt": ["fault of /home/[user]", "more"],
    }


def test_without_redaction_everything_is_recorded() -> None:
    told = record(FAULT, redacted=False)
    assert (told["path"], told["text"]) == ("/home/ada/slurm-7.out", "fault of /home/ada")


def test_an_excerpt_is_as_long_as_it_is_asked_to_be() -> None:
    matches = [match("gpu_fault", n, text=f"line {n}") for n in range(5)]
    assert record(*matches, excerpt_lines=2)["excerpt"] == ["line 0", "line 1"]
    assert record(*matches, excerpt_lines=0)["excerpt"] == []


def test_a_line_without_a_stamp_has_the_time_of_its_reading() -> None:
    told = record(
        match("gpu_fault", time=12.5, time_source="observed", read_at=NOW),
        match("gpu_fault", time=13.5, time_source="observed", read_at=NOW + 9),
    )
    assert (told["time"], told["last_time"], told["time_source"]) == (
        "2023-11-14T22:13:20.000Z", "2023-11-14T22:13:29.000Z", "observed",
    )  # fmt: skip


def test_the_rank_of_the_line_outweighs_that_of_the_path() -> None:
    job = Job(id="7", kind="slurm", rank="9")
    assert record(match("gpu_fault", job=job, rank="3"))["job"]["rank"] == "3"
    assert record(match("gpu_fault", job=job))["job"]["rank"] == "9"
    assert record(match("gpu_fault", job=None))["job"] is None


def test_a_long_line_is_cut() -> None:
    assert len(record(match("gpu_fault", text="x" * 10_000))["text"]) == MAX_TEXT


def test_whatever_a_file_is_called_its_record_can_be_written() -> None:
    name = b"/jobs/\xff\xfe/job_77777/x.log".decode("utf-8", "surrogateescape")
    told = record(match("gpu_fault", path=name, job=Job(id=name, kind="path", user=name), captures={"path": name}))
    assert json.dumps(told, ensure_ascii=False).encode()
    assert told["path"] == told["job"]["id"] == "/jobs/\\udcff\\udcfe/job_77777/x.log"


def test_a_journal_record_is_one_line_without_control_characters() -> None:
    text = "fault\x9b31m \u202e \u2028 “ü”"
    told = line(record(match("gpu_fault", text=text)))
    assert told.isprintable()
    assert json.loads(told)["text"] == text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (NOW + 0.0004, "2023-11-14T22:13:20.000Z"),
        (NOW + 0.9996, "2023-11-14T22:13:21.000Z"),
        (4102444799.999, "2099-12-31T23:59:59.999Z"),
    ],
)
def test_times_are_written_in_utc_with_milliseconds(time: float, text: str) -> None:
    assert rfc3339(time) == text


def test_facts_and_heartbeats_are_records_too() -> None:
    now = Moment(time=NOW, boot="6c5f", boot_seconds=7200.0)
    gpu = Gpu(pci="0000:c1:00.0", unique_id="3f9a61c2d4e8b705", facts={"gpu_model": "AMD Instinct MI210"})
    assert facts_record({"os": "Debian", "cuda_version": "12.4"}, [gpu], "gpu-7", now) == {
        "kind": "facts", "time": "2023-11-14T22:13:20.000Z", "node": "gpu-7",
        "facts": {"cuda_version": "12.4", "gpu_serial.0000:c1:00.0": "3f9a61c2d4e8b705", "os": "Debian"},
        "gpus": [{"pci": "0000:c1:00.0", "unique_id": "3f9a61c2d4e8b705", "serial": None}],
        "boot": {"id": "6c5f", "time": "2023-11-14T20:13:20.000Z"},
    }  # fmt: skip
    assert facts_record({}, [], "gpu-7", Moment(time=NOW, boot="", boot_seconds=0.0))["boot"] is None
    assert heartbeat_record("gpu-7", NOW, 300.0, None) == {
        "kind": "heartbeat", "time": "2023-11-14T22:13:20.000Z", "node": "gpu-7", "hours": 0.083333, "gpu_busy_hours": None,
    }  # fmt: skip
    assert heartbeat_record("gpu-7", NOW, 300.0, 1 / 3)["gpu_busy_hours"] == 0.333333
