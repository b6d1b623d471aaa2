"""Crash lines as programs and drivers write them, with every field random: ranks, steps, ids, figures of any length."""

from __future__ import annotations

import random
from collections.abc import Callable

Crash = Callable[[int, random.Random], str]


def _number(dice: random.Random, digits: int) -> int:
    """A number of up to so many digits; each length is equally frequent."""
    return dice.randrange(10 ** dice.randint(1, digits))


def _address(dice: random.Random) -> str:
    return f"0x{dice.getrandbits(dice.choice((32, 40, 47, 47, 47))):x}"


def _pci(dice: random.Random) -> str:
    return f"0000:{dice.choice((0x03, 0x3B, 0x5E, 0x87, 0xC1, 0xDA)):02x}:00"


def _pid(dice: random.Random) -> int:
    """A kernel's flood is that of a few processes: each has its own incident."""
    return dice.choice((811, 4711, 52_021, 1_048_577))


def _stamp(number: int) -> str:
    return f"2026-11-21 01:{number // 60_000 % 60:02}:{number // 1000 % 60:02}"


def _rank(dice: random.Random) -> int:
    return dice.randrange(dice.choice((8, 128, 2048)))


def _size(dice: random.Random, most: float = 190.0, mebibytes: float = 0.0) -> str:
    if dice.random() < mebibytes:
        return f"{dice.random() * 1023:.2f} MiB"
    return f"{dice.random() * dice.choice((9.9, most)):.2f} GiB"


def _intel_page_fault(_line: int, dice: random.Random) -> str:
    return (
        f"Unexpected page fault from GPU at 0xff00{dice.getrandbits(48):012x}, ctx_id: {_number(dice, 5)} (CCS) type:"
        f" {dice.randrange(3)} (NotPresent), level: {dice.randrange(5)} (PDE), access: {dice.randrange(3)} (Read),"
        f" banned: {dice.randrange(2)}, aborting."
    )


def _hip_error(number: int, dice: random.Random) -> str:
    return (
        f"[rank{_rank(dice)}]: {_stamp(number)} HIP error: invalid argument hipErrorInvalidValue at {_address(dice)}"
        f" step {_number(dice, 7)}"
    )


def _hip_message(_line: int, dice: random.Random) -> str:
    return f"[rank{_rank(dice)}]: RuntimeError: HIP error: invalid argument at step {_number(dice, 7)}"


def _rocr_fault(_line: int, dice: random.Random) -> str:
    return (
        f"Memory access fault by GPU node-{dice.randrange(1, 17)} (Agent handle: {_address(dice)}) on address"
        f" {_address(dice)[:-3]}000. Reason: Page not present or supervisor privilege."
    )


def _hip_log(_line: int, dice: random.Random) -> str:
    return (
        f":{dice.randint(1, 4)}:hip_memory.cpp            :{_number(dice, 4)} : {_number(dice, 12)} us:"
        f" [pid:{_number(dice, 7)} tid:{_address(dice)}] hipMemcpyAsync: Returned hipErrorInvalidValue : "
    )


def _captured(_line: int, dice: random.Random) -> str:
    return (
        f"[rank{_rank(dice)}]: RuntimeError: HIP error: operation not permitted when stream is capturing"
        f" hipErrorStreamCaptureUnsupported step {_number(dice, 7)}"
    )


def _watchdog(number: int, dice: random.Random) -> str:
    rank = _rank(dice)
    return (
        f"[rank{rank}]:[E1121 01:02:{number // 1000 % 60:02}.{dice.randint(0, 999_999):06}"
        f" ProcessGroupNCCL.cpp:{_number(dice, 4)}] [PG ID {_number(dice, 2)} PG GUID {_number(dice, 3)}(default_pg) Rank"
        f" {rank}] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was"
        " encountered"
    )


def _out_of_memory(_line: int, dice: random.Random) -> str:
    want, free, idle = (_size(dice, most, 0.5) for most in (20, 90, 20))
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {want}. GPU {_rank(dice) % 16} has a total capacity"
        f" of {_size(dice)} of which {free} is free. Process {_number(dice, 7)} has {_size(dice)} memory in use. Of the"
        f" allocated memory {_size(dice)} is allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated."
    )


def kernel_stamp(number: int, dice: random.Random) -> str:
    """When the kernel writes a line, at a thousand a second, as jobs do: with fewer, its floods are many incidents."""
    return f"[{number // 1000:>5}.{number % 1000:03}{dice.randint(0, 999):03}]"


def _of_kernel(text: Crash) -> Crash:
    return lambda number, dice: f"{kernel_stamp(number, dice)} {text(number, dice)}"


def _xid_31(_line: int, dice: random.Random) -> str:
    return (
        f"NVRM: Xid (PCI:{_pci(dice)}): 31, pid={_pid(dice)}, name=python, Ch {dice.getrandbits(16):08x}, intr"
        f" {dice.getrandbits(32):08x}. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_{_number(dice, 2)} faulted @"
        f" 0x{dice.getrandbits(dice.choice((4, 12, 15))):x}_{dice.getrandbits(32):08x}. Fault is of type FAULT_PDE"
        " ACCESS_TYPE_VIRT_READ"
    )


def _xid_13(_line: int, dice: random.Random) -> str:
    return (
        f"NVRM: Xid (PCI:{_pci(dice)}): 13, pid={_pid(dice)}, name=python, Graphics Exception:"
        f" ESR 0x{dice.getrandbits(24):x}=0x{dice.getrandbits(16):x} 0x504648=0x{dice.getrandbits(8):x}"
    )


def _segfault(_line: int, dice: random.Random) -> str:
    return (
        f"python[{_pid(dice)}]: segfault at {dice.getrandbits(40):x} ip {dice.getrandbits(47):016x}"
        f" sp {dice.getrandbits(47):016x} error {dice.randint(4, 7)} in"
        f" libcuda.so.535.54.03[{dice.getrandbits(47):x}+{dice.getrandbits(25):x}]"
    )


def _xe_reset(_line: int, dice: random.Random) -> str:
    return (
        f"xe {_pci(dice)}.0: [drm] Tile{dice.randrange(2)}: GT{dice.randrange(2)}: Engine reset: engine_class=ccs,"
        f" logical_mask: 0x{1 << dice.randrange(4):x}, guc_id={_number(dice, 3)}"
    )


def _i915_hang(_line: int, dice: random.Random) -> str:
    return (
        f"i915 {_pci(dice)}.0: [drm] GPU HANG: ecode 12:{_number(dice, 2)}:{dice.getrandbits(32):08x}, in python"
        f" [{_pid(dice)}]"
    )


def _amdgpu_fault(_line: int, dice: random.Random) -> str:
    pid = _pid(dice)
    return (
        f"amdgpu {_pci(dice)}.0: amdgpu: [gfxhub] page fault (src_id:0 ring:{_number(dice, 3)} vmid:{dice.randrange(16)}"
        f" pasid:{_number(dice, 5)}, for process python pid {pid} thread python pid {_number(dice, 7)}) address"
        f" 0x{dice.getrandbits(dice.choice((32, 44, 47))):x}"
    )


def _amdgpu_fault_lines(number: int, dice: random.Random) -> str:
    """With the line that the driver writes behind it, at the same time."""
    head = f"{kernel_stamp(number, dice)} amdgpu {_pci(dice)}.0: amdgpu:"
    pid = _pid(dice)
    return (
        f"{head} [gfxhub] page fault (src_id:0 ring:{_number(dice, 3)} vmid:{dice.randrange(16)} pasid:{_number(dice, 5)},"
        f" for process python pid {pid} thread python pid {_number(dice, 7)})\n"
        f"{head}   in page starting at address 0x{dice.getrandbits(dice.choice((32, 44, 47))):016x} from client"
        f" 0x{dice.randrange(8, 28):x} (UTCL2)"
    )


OF_JOBS: dict[str, Crash] = {
    "ROCr, memory access fault": _rocr_fault,
    "HIP's log, hipErrorInvalidValue": _hip_log,
    "a framework's hipErrorInvalidValue": _hip_error,
    "a framework's HIP error: invalid argument": _hip_message,
    "a framework's capture error": _captured,
    "Intel, page fault": _intel_page_fault,
    "PyTorch, NCCL's watchdog": _watchdog,
    "PyTorch, out of memory": _out_of_memory,
}
OF_KERNELS: dict[str, Crash] = {
    "NVIDIA, Xid 13": _of_kernel(_xid_13),
    "NVIDIA, Xid 31": _of_kernel(_xid_31),
    "amdgpu, page fault": _of_kernel(_amdgpu_fault),
    "amdgpu, page fault with its second line": _amdgpu_fault_lines,
    "i915, hang": _of_kernel(_i915_hang),
    "xe, engine reset": _of_kernel(_xe_reset),
    "a segmentation fault in libcuda": _of_kernel(_segfault),
}
