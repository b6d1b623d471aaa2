"""The Pod Security Standards, as far as a pod of ours could violate them: the checks of
https://kubernetes.io/docs/concepts/security/pod-security-standards/ as of Kubernetes 1.33.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy.kubernetes import Object

# May be added below `baseline`; below `restricted` only NET_BIND_SERVICE.
CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def standard(pod: Object) -> str:
    """The strictest standard that admits a pod: `restricted`, `baseline` or `privileged`."""
    if set(baseline_violations(pod)):
        return "privileged"
    return "baseline" if set(restricted_violations(pod)) else "restricted"


def baseline_violations(pod: Object) -> Iterator[str]:
    """What `baseline` does not admit."""
    yield from (key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key))
    yield from (f"hostPath {v['hostPath']['path']}" for v in pod.get("volumes", ()) if "hostPath" in v)
    for context in _contexts(pod):
        if context.get("privileged"):
            yield "privileged"
        yield from sorted({*context.get("capabilities", {}).get("add", ())} - CAPABILITIES)
        selinux = context.get("seLinuxOptions", {})
        if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
            yield "seLinuxOptions"
        yield from (
            f"{key} Unconfined"
            for key in ("seccompProfile", "appArmorProfile")
            if context.get(key, {}).get("type") == "Unconfined"
        )
        if context.get("procMount", "Default") != "Default":
            yield "procMount"
        if context.get("sysctls"):
            yield "sysctls"
    for container in _containers(pod):
        yield from (f"hostPort {port['hostPort']}" for port in container.get("ports", ()) if port.get("hostPort"))


def restricted_violations(pod: Object) -> Iterator[str]:
    """What `restricted` does not admit of what `baseline` does."""
    of_pod = pod.get("securityContext", {})
    for volume in pod.get("volumes", ()):
        yield from (f"volume of type {kind}" for kind in volume.keys() - {"name"} - VOLUMES)
    for container in _containers(pod):
        context = of_pod | container.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation"
        if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
            yield "runAsNonRoot"
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield "seccompProfile"
        capabilities = context.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", ()) or {*capabilities.get("add", ())} - {"NET_BIND_SERVICE"}:
            yield "capabilities"


def _containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def _contexts(pod: Object) -> list[Object]:
    return [pod.get("securityContext", {}), *(each.get("securityContext", {}) for each in _containers(pod))]
