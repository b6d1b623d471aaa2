"""A seccomp filter that denies open_by_handle_at(2) to this process and to every program it starts.

With CAP_DAC_READ_SEARCH the call opens any file of a mounted file system by its inode number, even outside the folders of
a container. The default profiles of container runtimes allow it to processes with the capability. We never need it.
"""

import ctypes
import errno
import os
import struct
from pathlib import Path

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h
_CAP_DAC_READ_SEARCH = 1 << 2  # linux/capability.h
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000  # the bit that marks x32 system calls, which share x86_64's architecture
# AUDIT_ARCH_* of linux/audit.h to the numbers of the system call, for 64-bit and 32-bit programs.
_CALLS: dict[str, dict[int, tuple[int, ...]]] = {
    "x86_64": {0xC000003E: (304, _X32 | 304), 0x40000003: (342,)},
    "aarch64": {0xC00000B7: (265,), 0x40000028: (371,)},
}

_PERSONALITIES = {
    **dict.fromkeys(("i386", "i486", "i586", "i686"), "x86_64"),
    **dict.fromkeys(("armv7l", "armv8l"), "aarch64"),
}  # machine names that uname(2) gives a process with a 32-bit personality (setarch), to the real one

Instruction = tuple[int, int, int, int]  # code, steps to skip if true, if false, operand


def deny_open_by_handle() -> None:
    """Make the system call fail with EPERM from now on, if this process has the capability for it.

    Call it before threads start: a filter applies to its thread, and to later threads and programs of that thread. Raises
    OSError if the kernel does not accept the filter.
    """
    if not _has_capability():
        return  # the kernel denies the call already
    reported = os.uname().machine
    machine = _PERSONALITIES.get(reported, reported)
    if machine not in _CALLS:
        raise OSError(errno.ENOSYS, f"no filter for {machine}")
    try:
        _set_filter(program(machine))
    except OSError as error:
        if error.errno != errno.EACCES:
            raise
        # Without CAP_SYS_ADMIN, a process must first give up gaining privileges through setuid programs (seccomp(2)).
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _set_filter(program(machine))


def _has_capability() -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    (permitted,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapPrm:"))
    return bool(int(permitted, 16) & _CAP_DAC_READ_SEARCH)


def program(machine: str) -> list[Instruction]:
    """The BPF instructions of the filter. They deny every call of an architecture that `machine` cannot run."""
    steps: list[Instruction] = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for architecture, numbers in _CALLS[machine].items():
        ours: list[Instruction] = [(_LOAD, 0, 0, _NUMBER)]
        for left, number in enumerate(reversed(numbers)):
            ours.insert(1, (_JUMP_IF_EQUAL, left + 1, 0, number))  # skips the other comparisons and the first return
        ours += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
        steps += [(_JUMP_IF_EQUAL, 0, len(ours), architecture), *ours]
    return [*steps, (_RETURN, 0, 0, _ERRNO | errno.EPERM)]


def _set_filter(steps: list[Instruction]) -> None:
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)  # struct sock_filter
    instructions = ctypes.create_string_buffer(code, len(code))
    fprog = struct.pack("@HP", len(steps), ctypes.addressof(instructions))  # struct sock_fprog
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(fprog, len(fprog)))


def _prctl(option: int, value: int, pointer: ctypes.Array[ctypes.c_char] | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
