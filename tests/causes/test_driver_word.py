"""What NVIDIA's driver asks for in an Xid 154 beats what the catalogue says of the incident beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.node_faults import fault_of
from exporter.core.model import Action, Moment
from exporter.scan.plan import Task
from exporter.scan.run import scan

NOW = Moment(time=1795000000.0, boot="b", boot_seconds=9000.0)
# The words of NVML, of driver branch 610, and two that no driver has yet.
WORDS: dict[str, Action] = {
    "GPU Reset Required": "reset_gpu", "Drain and Reset": "reset_gpu", "Bus Reset": "reset_gpu",
    "Node Reboot Required": "reboot", "OS Reboot": "reboot", "System Reboot": "reboot", "Drain P2P": "restart_job",
    "Recover IMEX Domain": "run_diagnostics", "Replug Module": "run_diagnostics", "": "run_diagnostics",
}  # fmt: skip
BESIDE = {
    "alone": "",
    "nonfatal": "145, RLW_TAGSTATE Nonfatal XC0 i0 Link 05 (0x00000102 0x00010000 0x00000000 0x00000000 0x00000000 0x00000000)",
    "channel": "43, pid=5512, name=python3, Ch 00000010",
    "memory": "63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x00000000003f2c40) marked for remapping.",
    "program": "31, pid=5512, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted",
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


def diagnoses(word: str, beside: str, catalogue: Catalogue, tmp_path: Path) -> list[Diagnosis]:
    xids = [beside] if beside else []
    xids += [f"154, GPU recovery action changed from 0x0 (None) to 0x9{f' ({word})' if word else ''}"]
    lines = (f"[ 8123.{n}00000] NVRM: Xid (PCI:0000:04:00): {xid}\n" for n, xid in enumerate(xids, 3))
    log = tmp_path / "kernel.log"
    log.write_text("".join(lines))
    return scan([Task(str(log), "kernel", "plain")], catalogue, node="node", facts={}, engine="python").diagnoses


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("word", WORDS)
def test_an_action_that_the_driver_names_is_never_ignored(
    word: str, beside: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    found = diagnoses(word, BESIDE[beside], catalogue, tmp_path)
    faults = [fault for d in found if (fault := fault_of(d, catalogue, NOW, settled=True))]
    asked = WORDS[word]
    if asked == "restart_job":
        assert [d.action for d in found if d.incident.first.captures["xid"] == "154"] in (["restart_job"], [None])
        return
    assert [fault.action for fault in faults] == [asked]
    [fault] = faults
    said = " ".join([fault.title, fault.remediation, *(f"{d.root_cause} {d.remediation}" for d in found)])
    for denial in ("does not need", "needs no action", "without_reset", "restarting the job is enough"):
        assert denial not in said
    asked_in_words = {"reset_gpu": "reset", "reboot": "reboot"}.get(asked, "action")
    assert asked_in_words in fault.title


@pytest.mark.parametrize("beside", BESIDE)
def test_none_is_no_fault(beside: str, catalogue: Catalogue, tmp_path: Path) -> None:
    found = diagnoses("None", BESIDE[beside], catalogue, tmp_path)
    assert [d for d in found if fault_of(d, catalogue, NOW, settled=True)] == []
