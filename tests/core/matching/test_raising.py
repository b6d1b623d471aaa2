"""Which process raised a kernel line: named in the line, in one before it, or milliseconds later."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.incidents import condense
from exporter.core.diagnosis.open_incidents import OpenIncidents, group
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.raising import Raising, pid_in
from exporter.core.model import Incident, Match
from tests.support.matches import NOW, WINDOW, chunk

ADDRESS_13 = "13, Graphics SM Warp Exception on (GPC 0, TPC 4, SM 0): Out Of Range Address"
ESR_13 = "13, Graphics Exception: ESR 0x509730=0x303000e 0x509734=0x24"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


def xid(seconds: float, text: str, gpu: int = 6) -> str:
    return f"3,,{round((100 + seconds) * 1e6)},-;NVRM: Xid (PCI:0000:00:{gpu:02x}): {text}\n"


def matches(catalogue: Catalogue, *lines: str, restarts: bool = False) -> list[Match]:
    """What lines of the kernel show, read at once or with a restart between each two."""
    found: list[Match] = []
    offset, stored = 0, dict[str, str]()
    for data in lines if restarts else ["".join(lines)]:
        pipeline = Pipeline(catalogue, window=WINDOW)
        pipeline.restore(stored)
        done = pipeline.process(
            chunk(data.encode(), source="kernel", format="kmsg", offset=offset, read_at=NOW, boot_time=NOW - 200)
        )
        found += done.matches
        offset += done.consumed
        stored |= {log: text for log, text in pipeline.unsaved().items() if text is not None}
    return found


def raised(incidents: list[Incident]) -> list[tuple[str, str | None, int]]:
    return [(i.signature.split("_")[2], i.raised_by, i.lines) for i in incidents]


def test_lines_without_a_pid_belong_to_the_process_that_the_next_lines_name(catalogue: Catalogue) -> None:
    lines = [
        xid(0, ADDRESS_13), xid(0.0016, ESR_13), xid(0.004, "43, pid=5711, name=nbody, channel 0x0000000a"),
        xid(1.7, ADDRESS_13), xid(1.7016, ESR_13), xid(1.704, "43, pid=5750, name=nbody, channel 0x0000000a"),
        xid(3, ADDRESS_13), xid(3.0016, ESR_13),
        xid(3.003, "13, pid=5600, name=heat, Graphics Exception: channel 0x0000000a, Class 0000cbc0, Offset 00000510"),
    ]  # fmt: skip
    for restarts in (False, True):
        assert raised(group(matches(catalogue, *lines, restarts=restarts), WINDOW)) == [
            ("13", "pid 5711", 2), ("43", "pid 5711", 1),
            ("13", "pid 5750", 2), ("43", "pid 5750", 1),
            ("13", "pid 5600", 3),
        ]  # fmt: skip


def test_in_any_order_of_arrival(catalogue: Catalogue) -> None:
    lines = [xid(0, ADDRESS_13), xid(0.002, ESR_13), xid(0.004, "43, pid=5711, name=nbody, channel 0x0000000a")]
    found = matches(catalogue, *lines)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        incidents = OpenIncidents(WINDOW)
        for at in order:
            incidents.join(condense([found[at]], WINDOW)[0])
        told = sorted((entry.incident for entry in incidents), key=lambda i: i.order)
        assert raised(told) == [("13", "pid 5711", 2), ("43", "pid 5711", 1)]


def test_another_gpu_another_channel_and_a_late_line_close_no_block(catalogue: Catalogue) -> None:
    channel_of_13 = "13, Graphics Exception: channel 0x00000010, Class 0000cbc0"
    assert raised(
        group(
            matches(
                catalogue,
                xid(0, ADDRESS_13),
                xid(0.004, "43, pid=1, name=a, channel 0x0000000a", gpu=7),
                xid(9, "43, pid=2, name=a, channel 0x0000000a"),
                xid(20, channel_of_13),
                xid(20.1, "43, pid=3, name=a, channel 0x0000000a"),
            ),
            WINDOW,
        )
    ) == [("13", "block 0", 1), ("43", "pid 1", 1), ("43", "pid 2", 1), ("13", "block 282", 1), ("43", "pid 3", 1)]


def test_a_kernel_log_that_never_names_a_process_has_one_incident_for_each_episode(catalogue: Catalogue) -> None:
    lines = [xid(seconds, ADDRESS_13) for seconds in (0, 2, 4, 25, 28)]
    assert [i.lines for i in group(matches(catalogue, *lines), WINDOW)] == [3, 2]


def test_two_processes_are_two_incidents_whatever_the_time_between_them(catalogue: Catalogue) -> None:
    fault = "31, pid={}, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x1_2"
    lines = [xid(number / 1000, fault.format(100 + number)) for number in range(20)]
    assert raised(group(matches(catalogue, *lines), WINDOW)) == [("31", f"pid {100 + n}", 1) for n in range(20)]


def test_processes_that_report_one_hang_of_the_card_are_one_incident(catalogue: Catalogue) -> None:
    hang = "119, pid={}, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76"
    assert raised(group(matches(catalogue, *(xid(n, hang.format(n + 1)) for n in range(3))), WINDOW)) == [
        ("119", None, 3)
    ]


def test_amds_report_names_its_process_in_the_first_line(catalogue: Catalogue) -> None:
    def page_fault(at: float, pid: int) -> list[str]:
        head = f"3,,{round((100 + at) * 1e6)},-;amdgpu 0000:c1:00.0: amdgpu: "
        return [
            f"{head}[gfxhub] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:7, for process a pid {pid} thread a pid 9)\n",
            f"{head}  in page starting at address 0x00007f3b2c000000 from client 0x1b (UTCL2)\n",
            f"{head}VM_L2_PROTECTION_FAULT_STATUS:0x00841051\n",
        ]

    found = group(matches(catalogue, *page_fault(0, 11), *page_fault(0.01, 12)), WINDOW)
    assert [i.raised_by for i in found] == ["pid 11", "pid 12"]


def test_a_flood_of_one_process_is_folded_and_the_next_process_is_not_lost_in_it(catalogue: Catalogue) -> None:
    flood = [
        xid(n / 700, f"13, pid=2885, name=smid, Graphics SM Warp Exception on (GPC {n % 7}, TPC 1, SM 0): Misaligned")
        for n in range(900)
    ]
    after = [xid(2, ADDRESS_13), xid(2.004, "43, pid=2990, name=nbody, channel 0x0000000a")]
    found = matches(catalogue, *flood, *after)
    assert len(found) < 20
    assert raised(group(found, WINDOW)) == [
        ("13", "block 0 pid 2885", 900),
        ("13", "pid 2990", 1),
        ("43", "pid 2990", 1),
    ]


class Kind(NamedTuple):
    id: str
    named_last: bool
    ends_report: bool


@pytest.mark.parametrize(
    "kind", [Kind("xid_43", True, True), Kind("xid_13", True, False), Kind("page_fault", False, False)]
)
@pytest.mark.parametrize(("pid", "by"), [("0", None), ("0007", "pid 7"), ("<unknown>", None), ("5711", "pid 5711")])
def test_a_flood_reads_a_pid_as_a_single_line_does(kind: Kind, pid: str, by: str | None) -> None:
    line = Raising({})
    first = line.of_line(kind, "gpu 6", {"pid": pid}, 100.0, 0)
    assert pid_in(first.by) == pid_in(by)
    for raising in (line, Raising({})):
        assert raising.of_flood(kind, "gpu 6", pid, 100.1, b"") in (
            None,
            first,
        )  # None: it is searched like the first one
        assert {pid_in(report.by) for report in raising.reports.values()} <= {pid_in(by)}


def test_the_line_of_the_channel_names_the_process_where_the_first_lines_name_another(catalogue: Catalogue) -> None:
    """As seen on an H100 with four programs at a time: the exception is that of 10084."""
    warp = "13, pid=10083, name=faults, Graphics SM Warp Exception on (GPC 0, TPC 4, SM 0): Misaligned Address"
    lines = [
        xid(0, warp),
        xid(0.004, "13, pid=10084, name=faults, Graphics Exception: channel 0x0000000b, Class 0000cbc0"),
        xid(0.4, "31, pid=10083, name=faults, channel 0x0000000e, intr 00000000. MMU Fault: ENGINE GRAPHICS"),
    ]
    assert raised(group(matches(catalogue, *lines), WINDOW)) == [("13", "pid 10084", 2), ("31", "pid 10083", 1)]


def test_another_fault_of_another_process_closes_no_block(catalogue: Catalogue) -> None:
    lines = [
        xid(0, ADDRESS_13),
        xid(0.3, "31, pid=10082, name=faults, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS"),
        xid(0.4, "43, pid=10084, name=faults, channel 0x0000000b"),
    ]
    assert raised(group(matches(catalogue, *lines), WINDOW)) == [
        ("13", "pid 10084", 1), ("31", "pid 10082", 1), ("43", "pid 10084", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("lines_of_flood", [3, 600])
def test_the_next_job_on_a_gpu_is_not_lost_in_a_report_that_nothing_closed(
    catalogue: Catalogue, lines_of_flood: int
) -> None:
    """As seen on an H200: 619 lines without a pid, a context switch timeout, and another job's report 25 s later."""
    flood = [
        xid(n / 700, f"13, Graphics SM Warp Exception on (GPC {n % 7}, TPC 1, SM 0): Misaligned Address")
        for n in range(lines_of_flood)
    ]
    after = [
        xid(5, "109, pid=2954, name=smid, channel 0x0000000a, errorString CTX SWITCH TIMEOUT, Info 0x78007"),
        xid(30, "13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address"),
        xid(30.001, "13, Graphics Exception: ESR 0x519730=0x501000f 0x519734=0x0 0x519728=0x1f81fb60 0x51972c=0x1174"),
        xid(30.003, "13, pid=3120, name=heat, Graphics Exception: channel 0x0000000a, Class 0000cbc0, Offset 00000510"),
    ]
    assert raised(group(matches(catalogue, *flood, *after), WINDOW)) == [
        ("13", "block 0", lines_of_flood), ("109", "pid 2954", 1), ("13", "pid 3120", 3),
    ]  # fmt: skip
