"""Pods of the chart have only the privileges in docs/install-kubernetes.md."""

from __future__ import annotations

import re

import pytest

from tests.deploy.kubernetes import (
    CHART,
    Object,
    needs_helm,
    objects,
    pods,
    rendered,
)

MODES = [path.name.removesuffix("-values.yaml") for path in sorted((CHART / "ci").glob("*-values.yaml"))]
pytestmark = [pytest.mark.deploy, needs_helm, pytest.mark.parametrize("mode", MODES)]

PRIVILEGED = {"privileged"}
STATE = "state"
# Where CAP_DAC_READ_SEARCH is asked for: by userLogs and jobProcesses, by a user other than 0.
READS_ALL = {"site", "nonroot-filecaps"}
REPORTS_CONDITIONS = {"conditions"}
PULLS = {"stack", "openshift"}
LOCALHOST = {"site"}


def containers(mode: str) -> list[tuple[str, Object, Object]]:
    """(name, pod, container) of all that runs, what prepares it included."""
    found = [
        (f"{name}/{container['name']}", pod, container)
        for name, pod in pods(rendered(mode))
        for container in (*pod.get("initContainers", ()), *pod["containers"])
    ]
    assert found
    return found


def test_every_container_has_a_read_only_root(mode: str) -> None:
    assert [n for n, _, c in containers(mode) if c["securityContext"]["readOnlyRootFilesystem"] is not True] == []


LIST_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}  # in the release's namespace alone
REPORT = [
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
]


def test_no_other_pod_than_what_asks_where_pods_are_has_an_api_token_and_a_role(mode: str) -> None:
    """The fleet service where it pulls from the release's daemons, and the reporter of conditions."""
    with_token = [name for name, pod, _ in containers(mode) if pod["automountServiceAccountToken"] is not False]
    items = objects(rendered(mode))
    assert [i for i in items if i["kind"] == "ServiceAccount" and i["automountServiceAccountToken"] is not False] == []
    roles = [i for i in items if i["kind"].endswith(("Role", "RoleBinding"))]
    rights = {(i["kind"], i["metadata"]["name"]): i["rules"] for i in roles if not i["kind"].endswith("Binding")}
    expected: dict[tuple[str, str], list[Object]] = {}
    pods_with_token: list[str] = []
    if mode in REPORTS_CONDITIONS:
        expected |= {
            ("ClusterRole", "gpu-gpu-gpufault-conditions"): REPORT,
            ("Role", "gpu-gpufault-conditions"): [LIST_PODS],
        }
        pods_with_token.append("Deployment/gpu-gpufault-conditions/conditions")
    if mode in PULLS:
        expected[("Role", "gpu-gpufault-fleet")] = [LIST_PODS]
        pods_with_token.append("Deployment/gpu-gpufault-fleet/fleet")
    assert (rights, with_token) == (expected, pods_with_token)
    for binding in (i for i in roles if i["kind"].endswith("Binding")):
        reference = binding["roleRef"]
        assert (reference["kind"], reference["name"]) in rights
        (account,) = binding["subjects"]
        assert reference["name"].endswith(account["name"])


def test_capabilities_are_limited_to_reading(mode: str) -> None:
    for name, pod, container in containers(mode):
        if mode in PRIVILEGED and name.startswith("DaemonSet"):
            continue
        security = container["securityContext"]
        needed: set[str] = set()
        if name.startswith("DaemonSet"):
            needed = {"SYSLOG"}
            needed |= {"DAC_READ_SEARCH"} if mode in READS_ALL else set()
            needed |= {"SYS_PTRACE"} if pod.get("hostPID") else set()
        if name.endswith("/own-state"):
            needed = {"CHOWN", "DAC_READ_SEARCH"}
        assert security["privileged"] is False, name
        assert security["capabilities"]["drop"] == ["ALL"], name
        assert set(security["capabilities"].get("add", ())) == needed, name


def test_privilege_escalation_is_denied_without_file_capabilities(mode: str) -> None:
    may_gain = {
        name for name, _, c in containers(mode) if c["securityContext"]["allowPrivilegeEscalation"] is not False
    }
    if mode in PRIVILEGED:
        expected = {name for name, _, _ in containers(mode) if name.startswith("DaemonSet")}
    else:
        expected = {n for n, _, c in containers(mode) if "python-filecaps" in " ".join(c.get("command", ()))}
    assert may_gain == expected


def test_a_seccomp_profile_is_set(mode: str) -> None:
    for name, pod, _ in containers(mode):
        profile = pod["securityContext"]["seccompProfile"]
        of_the_daemon = name.startswith("DaemonSet")
        if of_the_daemon and mode in LOCALHOST:
            assert profile == {"type": "Localhost", "localhostProfile": "gpufault.json"}
        else:
            assert profile == {"type": "Unconfined" if of_the_daemon and mode in PRIVILEGED else "RuntimeDefault"}


def test_node_folders_are_read_only_except_the_state(mode: str) -> None:
    for name, pod, container in containers(mode):
        of_the_node = {volume["name"]: volume["hostPath"] for volume in pod.get("volumes", ()) if "hostPath" in volume}
        mounts = [mount for mount in container.get("volumeMounts", ()) if mount["name"] in of_the_node]
        writable = [mount["name"] for mount in mounts if mount.get("readOnly") is not True]
        assert set(writable) <= {STATE}, name
        # a mount below a read-only one is still writable, unless this is said; what comes later excludes it
        open_below = [m["name"] for m in mounts if m["name"] != STATE and "recursiveReadOnly" not in m]
        assert [m for m in open_below if not m.startswith("extra-")] == [], name
        # only our own folders are made where they are missing
        made = {path["path"] for path in of_the_node.values() if path["type"] == "DirectoryOrCreate"}
        assert made <= {"/var/lib/gpufault", "/run/log/journal"}, name
        assert not {"/", "/etc", "/var/lib", "/var/lib/kubelet"} & {path["path"] for path in of_the_node.values()}, name


def test_no_pod_shares_the_network_or_memory_of_the_node(mode: str) -> None:
    for name, pod, _ in containers(mode):
        assert not pod.get("hostNetwork"), name
        assert not pod.get("hostIPC"), name
        assert bool(pod.get("hostPID")) is (mode == "site" and name.startswith("DaemonSet")), name


def test_only_the_daemon_is_root(mode: str) -> None:
    for name, pod, container in containers(mode):
        security = {**pod["securityContext"], **container["securityContext"]}
        if not name.startswith("DaemonSet") or (mode == "nonroot-filecaps" and not name.endswith("/own-state")):
            assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 65534), name


def test_memory_is_limited_and_cpu_time_is_not(mode: str) -> None:
    for name, _, container in containers(mode):
        resources = container["resources"]
        assert resources["limits"].keys() == {"memory"}, name
        assert resources["requests"].keys() == {"cpu", "memory"}, name


def test_a_tenth_of_the_nodes_is_updated_at_a_time(mode: str) -> None:
    sets = [item for item in objects(rendered(mode)) if item["kind"] == "DaemonSet"]
    assert [s["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] for s in sets] == ["10%"] * len(sets)


def test_liveness_and_readiness_probes_use_http(mode: str) -> None:
    for name, _, container in containers(mode):
        if name.startswith("Job/") or not re.search(r"/(gpufault|fleet)$", name):
            continue
        for probe, path in (("livenessProbe", "/-/healthy"), ("readinessProbe", "/-/ready")):
            asks = container[probe]
            asked = (
                asks["httpGet"]["path"] if "httpGet" in asks else "/" + asks["exec"]["command"][-1].partition("/")[2]
            )
            assert asked == path, name
