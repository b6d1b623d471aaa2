"""What the vendors' tables say of a line, and what follows: severity, verdict, action."""

from __future__ import annotations

import fnmatch
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue, load_packs
from exporter.core.catalogue.pack_types import Table, TableRow
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import OPERATOR_ACTIONS
from exporter.core.text.problems import InvalidInput
from exporter.scan.plan import Task
from exporter.scan.run import scan
from tests.support.matches import NOW, WINDOW, catalogue_of, chunk, match

CASES = Path(__file__).parent / "vendor_rows.yaml"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kernel_said(catalogue: Catalogue, *lines: str) -> list[Diagnosis]:
    Path("kernel.log").write_text("".join(f"[ 8123.{n:06}] {line}\n" for n, line in enumerate(lines)))
    return list(scan([Task("kernel.log", "kernel", "plain")], catalogue, node="n", facts={}, engine="python").diagnoses)


def job_said(catalogue: Catalogue, *lines: str) -> list[Diagnosis]:
    Path("job.log").write_text("".join(f"{line}\n" for line in lines))
    return list(scan([Task("job.log", "job", "plain")], catalogue, node="n", facts={}, engine="python").diagnoses)


def nvlink(what: str, link: int = 3, xid: int = 145) -> str:
    rest = " 0x00000000" * 4
    unit, kind, intrinfo, status = what.split()
    return f"NVRM: Xid (PCI:0000:04:00): {xid}, {unit} {kind} XC1 i0 Link {link:02} ({intrinfo} {status}{rest})"


def xid(number: int, text: str, gpu: str = "0000:3b:00") -> str:
    return f"NVRM: Xid (PCI:{gpu}): {number}, pid=4411, name=python3, {text}"


@pytest.mark.parametrize(
    "case", yaml.safe_load(CASES.read_text()), ids=lambda case: f"{case['says'][0]}-{case['says'][2]}"
)
def test_a_line_of_the_kernel_gets_the_severity_and_action_of_its_row(
    case: dict[str, Any], catalogue: Catalogue
) -> None:
    signature, severity, action = case["says"]
    found = {d.incident.signature: d for d in kernel_said(catalogue, case["line"]) if d.role == "root"}
    assert list(found) == [signature]
    diagnosis = found[signature]
    assert (diagnosis.severity, diagnosis.action) == (severity, action)
    assert (diagnosis.verdict == "infrastructure") <= (action != "ignore")
    if action in OPERATOR_ACTIONS:
        assert diagnosis.verdict == "infrastructure"


def test_the_process_that_an_nvlink_error_ended_is_not_the_workloads_fault(catalogue: Catalogue) -> None:
    for number in (145, 149):
        (diagnosis,) = kernel_said(catalogue, xid(45, f"Ch 00000008 caused by previous Xid {number}"))
        assert (diagnosis.root_cause, diagnosis.verdict) == ("gpu_fault_ended_process", "infrastructure")


def test_a_flood_that_may_be_ignored_hides_no_fatal_line(catalogue: Catalogue) -> None:
    nonfatal, fatal = "RLW_RXPIPE Nonfatal 0x000000c2 0x00000008", "RLW_RXPIPE Fatal 0x000000c2 0x00000040"
    found = kernel_said(catalogue, *[nvlink(nonfatal, link % 18) for link in range(300)], nvlink(fatal))
    assert [(d.incident.signature, d.action) for d in found if d.role == "root"] == [
        ("nv_xid_144_150_nvlink5_nonfatal", "ignore"),
        ("nv_xid_144_150_nvlink5", "reset_gpu"),
    ]
    corrected, uncorrected = (
        f"mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: {s}" for s in ("8c" + "0" * 14, "ac" + "0" * 14)
    )
    found = kernel_said(catalogue, *[corrected] * 300, uncorrected)
    assert ("mce_hardware_error", "replace") in [(d.incident.signature, d.action) for d in found]


@pytest.mark.parametrize(
    ("label", "action"),
    [
        ("GPU Reset Required", "reset_gpu"),
        ("Node Reboot Required", "reboot"),
        ("Drain and Reset", "reset_gpu"),
        ("None", None),
    ],
)
def test_what_the_driver_asks_for_counts_whatever_it_follows_from(
    label: str, action: str | None, catalogue: Catalogue
) -> None:
    """Xid 154 is a consequence; it asks for more than the error that it follows from."""
    found = kernel_said(
        catalogue,
        nvlink("RLW_SRC_TRACK Nonfatal 0x000000e2 0x00000008"),
        f"NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action changed from 0x2 (GPU Reset Required) to 0x1 ({label})",
    )
    roles = {d.incident.signature: (d.role, d.action) for d in found}
    assert roles["nv_xid_144_150_nvlink5_nonfatal"] == ("root", "restart_job")
    assert roles["nv_xid_154_recovery_action"] == ("cascade", action)


def test_a_consequence_does_not_ask_again_for_what_its_root_asks(catalogue: Catalogue) -> None:
    found = kernel_said(
        catalogue, xid(79, "GPU has fallen off the bus."), xid(119, "Timeout after 6s of waiting for RPC response")
    )
    assert {d.incident.signature: d.action for d in found} == {
        "nv_xid_79_fallen_off_bus": "reboot",
        "nv_xid_119_gsp_rpc_timeout": None,
    }


def test_a_ring_that_cannot_be_reset_asks_for_nothing_until_the_whole_gpu_cannot(catalogue: Catalogue) -> None:
    ring, gpu = "amdgpu 0000:c1:00.0: amdgpu: Ring gfx_0.0.0 reset failed", "amdgpu 0000:c1:00.0: amdgpu: GPU reset"
    found = kernel_said(catalogue, ring, f"{gpu}(3) succeeded!")
    assert [(d.root_cause, d.action) for d in found if d.role == "root"] == [("gpu_job_never_ended", None)]
    found = kernel_said(catalogue, ring, f"{gpu} end with ret = -110")
    assert "reboot" in {d.action for d in found}


def test_a_job_that_prints_a_fatal_line_asks_for_nothing(catalogue: Catalogue) -> None:
    fatal = "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 61"
    found = job_said(catalogue, fatal)
    assert {d.action for d in found} == {None}
    assert {d.severity for d in found if d.role == "root"} == {"critical"}


def table(catalogue: Catalogue, name: str) -> Table:
    (found,) = [t for t in catalogue.tables if t.id == name]
    return found


def nvlink_rows(row: TableRow) -> int:
    """How many rows of NVIDIA's sheet a row stands for: one for each status, or for each sub-code of a link."""
    if "intrinfo" not in row.where:
        return len(row.where["status"].split("|"))
    globs = row.where["intrinfo"].split("|")
    codes = [f"0x{code << 20:08x}" for code in range(64)]
    return sum(any(fnmatch.fnmatchcase(code, glob) for glob in globs) for code in codes)


def test_the_nvlink_table_has_the_94_rows_of_nvidias_sheet(catalogue: Catalogue) -> None:
    rows = [row for row in table(catalogue, "nvidia_nvlink5").rows if "xid" in row.where]
    counts = {
        action: sum(nvlink_rows(r) for r in rows if r.action == action)
        for action in ("ignore", "restart_job", "reset_gpu")
    }
    assert counts == {"ignore": 45, "restart_job": 8, "reset_gpu": 41}


def test_no_xid_is_in_two_rows(catalogue: Catalogue) -> None:
    """Of rows for an Xid alone, the second could never be reached."""
    alone = [
        n
        for row in table(catalogue, "nvidia_xid").rows
        if row.where.keys() == {"xid"}
        for n in row.where["xid"].split("|")
    ]
    assert sorted(set(alone)) == sorted(alone)


def test_every_table_says_where_and_when_it_was_read(catalogue: Catalogue) -> None:
    assert {t.id for t in catalogue.tables} >= {
        "nvidia_xid",
        "nvidia_nvlink5",
        "nvidia_sxid",
        "amd_ras",
        "machine_check_status",
    }
    for one in catalogue.tables:
        assert one.references
        assert one.read >= "2026-11-23"


def test_without_a_row_the_cause_of_a_critical_incident_asks_where_it_is_trusted() -> None:
    catalogue = catalogue_of(
        """
signatures:
  - {id: gpu_lost, patterns: ['GPU lost'], severity: critical, sources: [kernel, job]}
  - {id: gpu_slow, patterns: ['GPU slow'], sources: [kernel]}
  - {id: gpu_gone, patterns: ['GPU gone'], severity: critical, sources: [kernel], follows: [gpu_lost]}
root_causes:
  - {id: power, signatures: ['gpu_*'], verdict: infrastructure, action: reboot, when: {reported_by: kernel}}
"""
    )
    (lost,) = kernel_said(catalogue, "GPU lost")
    (slow,) = kernel_said(catalogue, "GPU slow")
    (said,) = job_said(catalogue, "GPU lost")
    assert (lost.action, slow.action, said.action) == ("reboot", None, None)
    assert {d.incident.signature: d.action for d in kernel_said(catalogue, "GPU lost", "GPU gone")} == {
        "gpu_lost": "reboot",
        "gpu_gone": None,
    }


def test_a_row_that_calls_an_operator_is_critical_and_no_other() -> None:
    text = """
pack: site
signatures:
  - {id: lost, title: lost it, vendor: any, layer: host, severity: critical, patterns: ['GPU lost'], sources: [kernel]}
tables:
  - id: site_table
    title: our own
    signatures: [lost]
    references: [https://example.org]
    read: '2026-11-23'
    rows:
      - {severity: warning, scope: gpu, action: reset_gpu}
"""
    with pytest.raises(InvalidInput, match="severity must be critical if and only if"):
        load_packs([("site.yaml", text)])


def test_the_former_key_needs_operator_still_reads() -> None:
    text = """
pack: site
signatures:
  - {id: lost, title: lost it, vendor: any, layer: host, severity: critical, patterns: ['GPU lost'], sources: [kernel]}
root_causes:
  - id: power
    title: no power
    signatures: [lost]
    verdict: infrastructure
    needs_operator: true
    strength: A
    remediation: Look at it.
"""
    assert load_packs([("site.yaml", text)]).root_causes["power"].needs_operator


def test_a_fatal_line_after_harmless_ones_is_an_incident_of_its_own(catalogue: Catalogue) -> None:
    """Otherwise it would join an incident that was reported already, and nobody would see it."""
    gpu = "0000:3b:00.0"
    harmless = {"xid": "154", "message": "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"}
    fatal = {"xid": "154", "message": "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"}
    name = "nv_xid_154_recovery_action"
    assert not catalogue.is_critical_line(name, harmless)
    assert catalogue.is_critical_line(name, fatal)
    book = IncidentTracker(catalogue, "node", window=WINDOW, settle=15.0)
    book.add([match(name, 0, source="kernel", gpu=gpu, captures=harmless)])
    (first,) = book.settle(NOW + 15, lambda _: {})
    book.add([match(name, 30, source="kernel", gpu=gpu, captures=fatal, grave=True)])
    (second,) = book.settle(NOW + 45, lambda _: {})
    assert (first.action, second.action) == ("ignore", "reboot")


def test_lines_of_a_signature_that_are_equally_grave_are_not_mixed(catalogue: Catalogue) -> None:
    """A flood of them is only counted."""
    mixed = {name for name in catalogue.mixed_severity if catalogue.has_mixed_lines(name)}
    assert {"nv_xid_154_recovery_action", "nv_xid_generic", "ghes_hardware_error"} <= mixed
    assert mixed.isdisjoint({"nv_xid_13_graphics_exception", "nv_xid_31_mmu_fault", "nv_xid_79_fallen_off_bus"})
    dice, log = random.Random(1), b""
    for signature in packs.load(whole=True).signatures.values():
        for example in signature.examples if "kernel" in signature.sources else ():
            log += f"{example.text}\n".encode()
            log += b"".join(
                re.sub(rb"\d", lambda _: b"%d" % dice.randrange(10), log[-len(example.text) - 1 :]) for _ in range(3)
            )
    grave: dict[str, set[bool]] = {}
    for found in Pipeline(catalogue).process(chunk(log, source="kernel")).matches:
        grave.setdefault(found.signature, set()).add(found.grave)
    equal = [ways for name, ways in grave.items() if name in catalogue.mixed_severity and name not in mixed]
    assert max(map(len, equal)) == 1
    assert len(equal) > 40
