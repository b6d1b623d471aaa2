"""Containers as the kubelet and its runtime start them: from a pod's spec to what runc runs, without an engine.

What a runtime adds by itself is here as CRI-O and containerd have it: the default devices, masked paths and seccomp
profile, and the log of a container as the kubelet reads it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from tests.deploy.kubernetes import ROOT, Object

SECCOMP = Path("/usr/share/containers/seccomp.json")  # of containers-common, what Podman and CRI-O call the default
LOCALHOST = ROOT / "deploy/seccomp"  # what a node would have in /var/lib/kubelet/seccomp
ARCHITECTURE = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
SHORT = {"x86_64": "amd64", "aarch64": "arm64"}
MASKED = (
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/sys/firmware",
)
READ_ONLY = ("/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("tty", 5, 0), ("random", 1, 8), ("urandom", 1, 9))
# capability.h, from 0 on
NAMES = [
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
]  # fmt: skip


class Container:
    """A container that runs. `log` is its output as the kubelet finds it below /var/log/pods."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        assert process.stdout
        self._pump = threading.Thread(target=_write_cri, args=(process.stdout, log), daemon=True)
        self._pump.start()

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """`kubectl exec`."""
        return subprocess.run(["runc", "exec", self.name, *command], capture_output=True, text=True, check=False)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def end(self) -> int:
        subprocess.run(["runc", "kill", self.name, "TERM"], check=False, capture_output=True)
        try:
            code = self.process.wait(timeout=30)
        finally:
            subprocess.run(["runc", "delete", "--force", self.name], check=False, capture_output=True)
        self._pump.join(timeout=10)
        return code


@contextmanager
def running(
    folder: Path, root: Path, image: Object, pod: Object, container: Object, volumes: dict[str, Path]
) -> Iterator[Container]:
    """The container of a pod: `root` is the image's file system, `image` its configuration, `volumes` where they lie here."""
    bundle = folder / f"bundle-{container['name']}"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps(specification(root, image, pod, container, volumes)))
    name = f"gpufault-{os.getpid()}-{folder.name}-{container['name']}"[:60]
    log = folder / "log/pods/gpu_gpufault-x_0123" / container["name"] / "0.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = ["runc", "run", "--bundle", str(bundle), name]
    started = Container(name, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT), log)
    try:
        yield started
    finally:
        started.end()


def specification(root: Path, image: Object, pod: Object, container: Object, volumes: dict[str, Path]) -> Object:
    """What is written into config.json of a bundle (opencontainers/runtime-spec)."""
    security = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
    privileged = bool(security.get("privileged"))
    allowed = capabilities(security)
    args = container.get("command", image["Entrypoint"]) + container.get(
        "args", [] if "command" in container else image["Cmd"]
    )
    env = [*image["Env"], *(f"{e['name']}={e.get('value', 'node-1')}" for e in container.get("env", []))]
    user = [int(part) for part in image["User"].split(":")]
    linux: Object = {
        "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
        "resources": {"devices": [{"allow": privileged, "access": "rwm"}]},
    }
    if privileged:
        kmsg = os.stat("/dev/kmsg").st_rdev
        linux["devices"] = [
            {"path": "/dev/kmsg", "type": "c", "major": os.major(kmsg), "minor": os.minor(kmsg), "fileMode": 0o600}
        ]
    else:
        linux["resources"]["devices"] += [
            {"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"} for _, major, minor in DEVICES
        ]
        linux |= {"maskedPaths": list(MASKED), "readonlyPaths": list(READ_ONLY)}
    profile = security.get("seccompProfile", {})
    if profile.get("type") == "RuntimeDefault":
        linux["seccomp"] = seccomp(allowed)
    elif profile.get("type") == "Localhost":
        linux["seccomp"] = json.loads((LOCALHOST / profile["localhostProfile"]).read_text())
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
        },
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
    ]
    for mount in container.get("volumeMounts", []):
        source = volumes[mount["name"]]
        source = source / mount["subPath"] if "subPath" in mount else source
        read = "rro" if mount.get("recursiveReadOnly") else "ro"
        options = ["rbind", read if mount.get("readOnly") else "rw"]
        mounts.append({"destination": mount["mountPath"], "type": "bind", "source": str(source), "options": options})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "args": args,
            "env": env,
            "cwd": "/",
            "user": {"uid": security.get("runAsUser", user[0]), "gid": security.get("runAsGroup", user[-1])},
            # As containerd: nothing inheritable and nothing ambient, so another user than 0 has none of them.
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), allowed),
            "noNewPrivileges": not security.get("allowPrivilegeEscalation", True),
        },
        "root": {"path": str(root), "readonly": bool(security.get("readOnlyRootFilesystem"))},
        "mounts": mounts,
        "linux": linux,
    }


def capabilities(security: Object) -> list[str]:
    if security.get("privileged"):
        ours = re.search(r"CapBnd:\s+(\w+)", Path("/proc/self/status").read_text())
        assert ours
        return [f"CAP_{name}" for bit, name in enumerate(NAMES) if int(ours[1], 16) >> bit & 1]
    asked = security.get("capabilities", {})
    assert asked.get("drop") == ["ALL"], "everything that we ship drops all first"
    return [f"CAP_{name}" for name in asked.get("add", [])]


def seccomp(allowed: list[str]) -> Object:
    """The runtime's default profile for one architecture and some capabilities."""
    profile = json.loads(SECCOMP.read_text())
    machine = os.uname().machine

    def applies(rule: Object) -> bool:
        wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
        return (
            all(cap in allowed for cap in wanted.get("caps", []))
            and not any(cap in allowed for cap in unwanted.get("caps", []))
            and SHORT[machine] in wanted.get("arches", [SHORT[machine]])
            and SHORT[machine] not in unwanted.get("arches", [])
        )

    # Podman lets everybody call syslog(2), containerd only whoever has the capability for it.
    refused = set() if "CAP_SYSLOG" in allowed else {"syslog"}
    syscalls = [
        {key: rule[key] for key in ("names", "action", "errnoRet") if rule.get(key) is not None}
        | ({"args": rule["args"]} if rule.get("args") else {})
        for rule in profile["syscalls"]
        if applies(rule)
    ]
    for rule in syscalls:
        rule["names"] = [name for name in rule["names"] if name not in refused]
    return {"defaultAction": profile["defaultAction"], "architectures": [ARCHITECTURE[machine]], "syscalls": syscalls}


def _write_cri(stream: IO[bytes], log: Path) -> None:
    with stream, log.open("ab") as file:
        for line in stream:
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
            file.write(f"{stamp} stdout F ".encode() + line)
            file.flush()
