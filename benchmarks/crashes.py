"""Crash lines as programs and drivers write them, one after the other: of each kind a line whose numbers are its own."""

from __future__ import annotations

import random
from collections.abc import Callable

Crash = Callable[[int, random.Random], str]


def _stamp(number: int) -> str:
    return f"2026-11-21 01:{number // 60_000 % 60:02}:{number // 1000 % 60:02}"


def _address(dice: random.Random) -> str:
    return f"0x{dice.randrange(0x7F0000000000, 0x800000000000):x}"


def _intel_page_fault(number: int, dice: random.Random) -> str:
    return (
        f"Unexpected page fault from GPU at 0xff00{dice.getrandbits(48):012x}, ctx_id: {number % 9} (CCS) type: 0"
        " (NotPresent), level: 1 (PDE), access: 0 (Read), banned: 1, aborting."
    )


def _hip_error(number: int, dice: random.Random) -> str:
    return (
        f"[rank{number % 8}]: {_stamp(number)} HIP error: invalid argument hipErrorInvalidValue at {_address(dice)}"
        f" step {number}"
    )


def _rocr_fault(number: int, dice: random.Random) -> str:
    return (
        f"Memory access fault by GPU node-{number % 8} (Agent handle: {_address(dice)}) on address"
        f" {_address(dice)[:-3]}000. Reason: Page not present or supervisor privilege."
    )


def _hip_log(number: int, dice: random.Random) -> str:
    return (
        f":1:hip_memory.cpp            :{dice.randint(100, 999)} : {number * 1000} us: [pid:{dice.randint(1000, 99999)}"
        f" tid:{_address(dice)}] hipMemcpyAsync: Returned hipErrorInvalidValue : "
    )


def _captured(number: int, _dice: random.Random) -> str:
    return (
        f"[rank{number % 8}]: RuntimeError: HIP error: operation not permitted when stream is capturing"
        f" hipErrorStreamCaptureUnsupported step {number}"
    )


def _watchdog(number: int, dice: random.Random) -> str:
    return (
        f"[rank{number % 8}]:[E1121 01:02:{number // 1000 % 60:02}.{dice.randint(0, 999_999):06}"
        f" ProcessGroupNCCL.cpp:{dice.randint(100, 999)}] [PG ID 0 PG GUID 0(default_pg) Rank {number % 8}] Process group"
        " watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"
    )


def _out_of_memory(number: int, dice: random.Random) -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {dice.random() * 20:.2f} GiB. GPU {number % 8} has a"
        f" total capacity of 79.10 GiB of which {dice.random() * 9:.2f} GiB is free. Process {number} has"
        f" {dice.random() * 60:.2f} GiB memory in use."
    )


def _of_kernel(text: Crash) -> Crash:
    return lambda number, dice: f"[{number:>5}.{dice.randint(0, 999_999):06}] {text(number, dice)}"


def _xid_31(number: int, dice: random.Random) -> str:
    return (
        f"NVRM: Xid (PCI:0000:3b:00): 31, pid={number}, name=python, Ch {dice.getrandbits(16):08x}, intr 00000000. MMU Fault:"
        f" ENGINE GRAPHICS GPCCLIENT_T1_{number % 4} faulted @ 0x7f{dice.getrandbits(8):02x}_{dice.getrandbits(32):08x}."
        " Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )


def _xid_13(number: int, dice: random.Random) -> str:
    return (
        f"NVRM: Xid (PCI:0000:3b:00): 13, pid={number}, name=python, Graphics Exception:"
        f" ESR 0x{dice.getrandbits(24):x}=0x{dice.getrandbits(16):x} 0x504648=0x0"
    )


def _segfault(number: int, dice: random.Random) -> str:
    return (
        f"python[{number}]: segfault at {dice.getrandbits(40):x} ip {dice.getrandbits(47):016x}"
        f" sp {dice.getrandbits(47):016x} error 4 in libcuda.so.535.54.03[{dice.getrandbits(47):x}+1000000]"
    )


def _xe_reset(number: int, _dice: random.Random) -> str:
    return f"xe 0000:03:00.0: [drm] Tile0: GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id={number % 99}"


def _i915_hang(number: int, dice: random.Random) -> str:
    return f"i915 0000:03:00.0: [drm] GPU HANG: ecode 12:{number % 9}:{dice.getrandbits(32):08x}, in python [{number}]"


def _amdgpu_fault(number: int, dice: random.Random) -> str:
    return (
        f"amdgpu 0000:c1:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:{number % 8} pasid:{number % 30_000},"
        f" for process python pid {number} thread python pid {number}) address 0x{dice.getrandbits(44):x}"
    )


OF_JOBS: dict[str, Crash] = {
    "ROCr, memory access fault": _rocr_fault,
    "HIP's log, hipErrorInvalidValue": _hip_log,
    "a framework's hipErrorInvalidValue": _hip_error,
    "a framework's capture error": _captured,
    "Intel, page fault": _intel_page_fault,
    "PyTorch, NCCL's watchdog": _watchdog,
    "PyTorch, out of memory": _out_of_memory,
}
OF_KERNELS: dict[str, Crash] = {
    "NVIDIA, Xid 13": _of_kernel(_xid_13),
    "NVIDIA, Xid 31": _of_kernel(_xid_31),
    "amdgpu, page fault": _of_kernel(_amdgpu_fault),
    "i915, hang": _of_kernel(_i915_hang),
    "xe, engine reset": _of_kernel(_xe_reset),
    "a segmentation fault in libcuda": _of_kernel(_segfault),
}
