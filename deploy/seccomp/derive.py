"""Writes gpufault.json from the default profile of container runtimes: `python deploy/seccomp/derive.py`.

The default is that of containers/common (Apache-2.0), as Debian's golang-github-containers-common installs it. Kubernetes
passes a profile to the runtime as it is, so the result holds no conditions on capabilities: it is the default for a
container with the daemon's two capabilities, without the calls in `NEVER`. A test compares the two.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DEFAULT = Path("/usr/share/containers/seccomp.json")
SHIPPED = Path(__file__).with_name("gpufault.json")
CAPABILITIES = {"CAP_DAC_READ_SEARCH", "CAP_SYSLOG"}
ARCHITECTURES = {"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}
EPERM = 1
NEVER = {
    # files by number, past the folders that are mounted
    "name_to_handle_at", "open_by_handle_at",
    # other processes
    "kcmp", "pidfd_getfd", "process_madvise", "process_mrelease", "process_vm_readv", "process_vm_writev", "ptrace",
    # mounts and namespaces
    "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree", "pivot_root",
    "setns", "umount", "umount2", "unshare",
    # keys, and a second way to call the kernel
    "add_key", "keyctl", "request_key", "io_uring_enter", "io_uring_register", "io_uring_setup",
}  # fmt: skip

Profile = dict[str, Any]


def derived(default: Profile) -> Profile:
    """The profile that is shipped, from the default one."""
    rules = [
        {
            "names": names,
            "action": rule["action"],
            **({"errnoRet": rule["errnoRet"]} if rule.get("errnoRet") is not None else {}),
            **({"args": rule["args"]} if rule.get("args") else {}),
        }
        for rule in default["syscalls"]
        if _applies(rule) and (names := sorted(set(rule["names"]) - NEVER))
    ]
    return {
        "defaultAction": default["defaultAction"],
        "defaultErrnoRet": default["defaultErrnoRet"],
        "architectures": list(ARCHITECTURES.values()),
        "syscalls": [{"names": sorted(NEVER), "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM}, *rules],
    }


def _applies(rule: Profile) -> bool:
    wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
    return (
        CAPABILITIES.issuperset(wanted.get("caps", ()))
        and CAPABILITIES.isdisjoint(unwanted.get("caps", ()))
        and not ARCHITECTURES.keys().isdisjoint(wanted.get("arches", ARCHITECTURES))
        and ARCHITECTURES.keys().isdisjoint(unwanted.get("arches", ()))
    )


def text(profile: Profile) -> str:
    return json.dumps(profile, indent=1) + "\n"


if __name__ == "__main__":
    SHIPPED.write_text(text(derived(json.loads(DEFAULT.read_text(encoding="utf-8")))), encoding="utf-8")
