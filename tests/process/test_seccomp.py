"""The seccomp filter of the daemon: what it refuses, by a real kernel and, for other architectures, by its instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.process import seccomp
from tests.support.handles import handle_of, read

X86_64, I386, AARCH64, ARM, OTHER = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028, 0xC0000015
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="opening a file by its handle takes CAP_DAC_READ_SEARCH")
DENIED_FIRST = """
import sys
sys.path.append(sys.argv[3])
from exporter.process import seccomp
from tests.support.handles import read
seccomp.deny_open_by_handle()
print(read(*sys.argv[1:3]))
print(open(sys.argv[2] + "/secret").read())
"""


def answer(machine: str, architecture: int, number: int) -> int:
    """What the filter returns for a system call: it is run as the kernel runs classic BPF."""
    steps, at, accumulator = seccomp.program(machine), 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == 0x20:
            accumulator = {0: number, 4: architecture}[operand]
        elif code == 0x15:
            at += if_true if accumulator == operand else if_false
        else:
            assert code == 0x06
            return operand


@pytest.mark.parametrize(
    ("machine", "architecture", "number"),
    [
        ("x86_64", X86_64, 304),
        ("x86_64", X86_64, 0x40000000 | 304),  # x32
        ("x86_64", I386, 342),
        ("aarch64", AARCH64, 265),
        ("aarch64", ARM, 371),
        ("x86_64", OTHER, 0),
    ],
)
def test_the_call_is_refused_by_each_number_that_it_has(machine: str, architecture: int, number: int) -> None:
    assert answer(machine, architecture, number) == 0x00050000 | 1  # SECCOMP_RET_ERRNO, EPERM


@pytest.mark.parametrize(
    ("machine", "architecture"), [("x86_64", X86_64), ("x86_64", I386), ("aarch64", AARCH64), ("aarch64", ARM)]
)
def test_every_other_call_is_allowed(machine: str, architecture: int) -> None:
    refused = [number for number in range(1024) if answer(machine, architecture, number) != 0x7FFF0000]
    assert len(refused) == 1


@needs_root
@pytest.mark.parametrize("capabilities", ["all", "-all,+dac_read_search"])
def test_a_process_can_open_a_file_by_its_handle_until_the_filter_is_set(capabilities: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    handle = handle_of(tmp_path / "secret")
    assert read(handle, str(tmp_path)) == "secret"
    command = [sys.executable, "-c", DENIED_FIRST, handle, str(tmp_path), str(Path(__file__).parents[2])]
    if capabilities != "all":
        command = ["setpriv", f"--bounding-set={capabilities}", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("EPERM\nsecret\n", "")


def test_a_process_without_the_capability_may_still_start_programs_that_gain_rights() -> None:
    code = (
        "from exporter.process import seccomp; seccomp.deny_open_by_handle(); print(open('/proc/self/status').read())"
    )
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-all", *command]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "NoNewPrivs:\t0\n" in said
