"""Texts that are slow to match cost only the log that they stand in: other logs go on, and whoever looks is told."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.config import packs
from tests.e2e.conftest import Node, eventually

pytestmark = pytest.mark.heavy

MakeNode = Callable[..., Node]
NAMES = re.compile(r"cudaError[A-Z]\w+")
SLOW_PACK = r"""
pack: site
signatures:
  - id: site_slow
    title: A pattern of the site that takes exponential time
    vendor: any
    layer: host
    severity: error
    patterns: ['site fault: (?:x|xx)+y at (?P<number>\d+)']
"""
# The daemon's clock is as far ahead as a file says, so that no test waits for ten minutes, or hurries to be within them.
CLOCK = """
import pathlib, time
ahead, real = pathlib.Path(__file__).with_name("ahead"), time.time
time.time = lambda: real() + float(ahead.read_text())
"""
TIMEOUTS = 'gpufault_signature_timeouts_total{signature="site_slow"}'
OFF = 'gpufault_signature_off{signature="site_slow"}'
MATCHED = 'gpufault_lines_matched_total{signature="site_slow",source="job"}'


def hostile_lines() -> Iterator[str]:
    """Lines of 16 KiB made of pieces of well-known ones; some of what a random search found to be slow."""
    nvlink = (
        "CUDA_ERROR_NVLINK_UNCORRECTABLE: uncorrectable NVLink " + "error d" * 2328 + "etected during the execution"
    )
    for name in ("NVLINK", "ECC", "CONTAINED"):
        yield nvlink.replace("_NVLINK_", f"_{name}_")
    for frame in (
        "torch.AcceleratorError: CUDA error:",
        "RuntimeError: HIP error:",
        "torch.OutOfMemoryError: CUDA error:",
    ):
        yield frame + "error:" * 2500
    for frame in ("CUDA error: an", "HIP error: an", "CUDA failure: an"):
        yield f"RuntimeError: {frame} illegal memory access was enc" + "'" * 16_000
    yield "hipMemcpy error( hipErrorInvalidValue" + ": failed hipErrorInvalidValue" * 550


def write(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


def test_no_text_of_one_job_switches_a_signature_off_for_others(make_node: MakeNode, tmp_path: Path) -> None:
    kernel = tmp_path / "kmsg"
    kernel.write_text("")
    node = make_node(
        [
            {"kind": "files", "paths": [f"{tmp_path}/jobs/*.log"]},
            {"kind": "kmsg", "path": str(kernel)},
        ]
    )
    node.start()
    write(node.logs / "mallory.log", "".join(line + "\n" for line in hostile_lines() for _ in range(4)))
    size = (node.logs / "mallory.log").stat().st_size
    assert size > 590_000
    eventually(lambda: (node.value('gpufault_source_bytes_read_total{source="files"}') or 0) >= size, 60)
    write(node.logs / "alice.log", "RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    write(node.logs / "bob.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    write(node.logs / "carol.log", "RuntimeError: HIP error: invalid argument\n")
    write(kernel, "3,900,100000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n")
    for signature, source in (
        ("cuda_ecc_uncorrectable", "job"),
        ("torch_oom", "job"),
        ("hip_error_invalid_value", "job"),
        ("nv_xid_79_fallen_off_bus", "kernel"),
    ):
        series = f'gpufault_lines_matched_total{{signature="{signature}",source="{source}"}}'
        eventually(lambda series=series: node.value(series))
    metrics = node.get("/metrics")
    assert "gpufault_signature_timeouts_total{" not in metrics
    assert "gpufault_signature_off{" not in metrics
    assert node.get("/-/ready") == "gpufault is ready.\n"


def test_a_slow_pattern_of_a_site_is_off_for_one_log_and_comes_back(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node()
    (tmp_path / "packs/site.yaml").write_text(SLOW_PACK)
    (tmp_path / "python").mkdir()
    (tmp_path / "python/sitecustomize.py").write_text(CLOCK)
    ahead = tmp_path / "python/ahead"
    ahead.write_text("0")
    node.wrap = ("env", f"PYTHONPATH={tmp_path}/python")
    node.start()
    mallory, alice = node.logs / "mallory.log", node.logs / "alice.log"
    write(mallory, ("site fault: " + "x" * 1500 + "z or y at 1\n") * 3)
    eventually(lambda: node.value(OFF) == 1.0)
    assert node.value(TIMEOUTS) == 3.0
    told = "site_slow takes too long on a log: not searched for in it until "
    assert node.get("/-/ready").startswith("gpufault is ready.\n" + told)
    assert told in node.get("/")
    assert str(mallory) not in node.get("/") + node.get("/-/ready")
    assert f"site_slow takes too long on {mallory}: not searched for in this log until " in node.log.read_text()
    write(mallory, "site fault: xy at 2\n")
    write(alice, "site fault: xy at 3\n")
    eventually(lambda: node.value(MATCHED))
    read = sum(log.stat().st_size for log in (mallory, alice))
    eventually(lambda: node.value('gpufault_source_bytes_read_total{source="files"}') == read or None)
    assert node.value(MATCHED) == 1.0, "alice's line, and not the one that mallory's log was too slow for"
    assert node.value(OFF) == 1.0
    (tmp_path / "ahead").write_text("700")
    (tmp_path / "ahead").replace(ahead)
    eventually(lambda: node.value(OFF) == 0.0)
    assert node.get("/-/ready") == "gpufault is ready.\n"
    write(mallory, "site fault: xy at 4\n")
    eventually(lambda: node.value(MATCHED) == 2.0)
    assert node.value(TIMEOUTS) == 3.0


def dear_lines(count: int) -> str:
    """Lines that lead to a hundred rules each, none of which runs out of its time: 0.1 s a line."""
    names = sorted(
        {name for s in packs.load().signatures.values() for p in s.patterns for name in NAMES.findall(p)}, key=len
    )
    end = " ".join(names)[:1300]
    return "".join(f"{(f'{number} ' + 'error:' * 200)[:700]} {end}\n" for number in range(count))


def test_dear_lines_of_one_job_delay_neither_the_kernels_log_nor_another_jobs(
    make_node: MakeNode, tmp_path: Path
) -> None:
    kernel = tmp_path / "kmsg"
    kernel.write_text("")
    node = make_node(
        [
            {"kind": "files", "paths": [f"{tmp_path}/jobs/*.log"]},
            {"kind": "kmsg", "path": str(kernel)},
        ]
    )
    node.start()
    write(node.logs / "mallory.log", dear_lines(300))
    eventually(lambda: (node.value('gpufault_source_bytes_read_total{source="files"}') or 0) > 0)
    began = time.monotonic()
    write(kernel, "3,900,100000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n")
    write(node.logs / "alice.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    for signature, source in (("nv_xid_79_fallen_off_bus", "kernel"), ("torch_oom", "job")):
        series = f'gpufault_lines_matched_total{{signature="{signature}",source="{source}"}}'
        eventually(lambda series=series: node.value(series))
    assert time.monotonic() - began < 30.0  # a second here; it was a minute
    assert node.get("/-/healthy")
    assert node.stop() == 0
