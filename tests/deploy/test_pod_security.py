"""Which Pod Security Standard admits each pod of the chart and of deploy/kustomize, and whether the docs say so."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.deploy.kubernetes import (
    CHART,
    KUSTOMIZE,
    ROOT,
    Object,
    built,
    needs_helm,
    needs_kustomize,
    pods,
    rendered,
)
from tests.deploy.pod_security import baseline_violations, restricted_violations, standard

pytestmark = pytest.mark.deploy

MODES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
PAGE = (ROOT / "docs/install-kubernetes.md").read_text()


def of(text: str) -> dict[str, str]:
    return {name.partition("/")[0]: standard(pod) for name, pod in pods(text)}


@needs_helm
@pytest.mark.parametrize("mode", MODES)
def test_only_the_daemon_needs_the_privileged_standard(mode: str) -> None:
    found = of(rendered(mode))
    assert found.pop("DaemonSet") == "privileged"
    assert set(found.values()) <= {"restricted"}


@needs_kustomize
def test_the_overlays_need_what_the_chart_needs() -> None:
    for path in KUSTOMIZE.rglob("kustomization.yaml"):
        found = of(built(str(path.parent.relative_to(KUSTOMIZE))))
        assert set(found.items()) <= {("DaemonSet", "privileged"), ("Deployment", "restricted")}


@needs_helm
def test_the_page_lists_what_keeps_the_daemon_out_of_the_baseline_standard() -> None:
    rows = dict(re.findall(r"^\| `(restricted-root|nonroot-filecaps|privileged)`.*\| (.+?) \|$", PAGE, re.MULTILINE))
    modes = {"restricted-root": "default", "nonroot-filecaps": "nonroot-filecaps", "privileged": "privileged"}
    assert rows.keys() == modes.keys()
    for profile, mode in modes.items():
        ((_, pod),) = [found for found in pods(rendered(mode)) if found[0].startswith("DaemonSet")]
        wrong = {re.sub(r"^hostPath.*", "`hostPath`", each) for each in baseline_violations(pod)}
        wrong = {each if each.startswith("`") else f"`{each}`" for each in wrong}
        assert set(rows[profile].split(", ")) == wrong, profile


# The checks themselves.

FINE: Object = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}],
    "volumes": [{"name": "c", "configMap": {}}],
}


def with_container(**context: Any) -> Object:
    (container,) = FINE["containers"]
    return {**FINE, "containers": [{"securityContext": {**container["securityContext"], **context}}]}


def test_a_pod_without_rights_is_admitted_by_the_restricted_standard() -> None:
    assert standard(FINE) == "restricted"


@pytest.mark.parametrize(
    ("pod", "violation"),
    [
        ({**FINE, "hostPID": True}, "hostPID"),
        ({**FINE, "hostNetwork": True}, "hostNetwork"),
        ({**FINE, "volumes": [{"name": "l", "hostPath": {"path": "/var/log"}}]}, "hostPath /var/log"),
        ({**FINE, "securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile Unconfined"),
        (with_container(privileged=True), "privileged"),
        (with_container(capabilities={"add": ["SYSLOG"]}), "SYSLOG"),
        (with_container(seLinuxOptions={"type": "spc_t"}), "seLinuxOptions"),
        (with_container(appArmorProfile={"type": "Unconfined"}), "appArmorProfile Unconfined"),
        (with_container(procMount="Unmasked"), "procMount"),
    ],
)
def test_the_baseline_standard_refuses(pod: Object, violation: str) -> None:
    assert list(baseline_violations(pod)) == [violation]
    assert standard(pod) == "privileged"


@pytest.mark.parametrize(
    ("pod", "violation"),
    [
        ({**FINE, "securityContext": {"runAsNonRoot": True}}, "seccompProfile"),
        ({**FINE, "volumes": [{"name": "n", "nfs": {}}]}, "volume of type nfs"),
        (with_container(allowPrivilegeEscalation=True), "allowPrivilegeEscalation"),
        (with_container(runAsUser=0), "runAsNonRoot"),
        (with_container(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}), "capabilities"),
        (with_container(capabilities={}), "capabilities"),
    ],
)
def test_the_restricted_standard_refuses(pod: Object, violation: str) -> None:
    assert list(restricted_violations(pod)) == [violation]
    assert standard(pod) == "baseline"
