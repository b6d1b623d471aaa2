"""Which Pod Security Standard admits each pod of the chart, by the checks of Kubernetes' own admission
plugin, and whether the docs say so.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.deploy.kubernetes import (
    CHART,
    OPERATOR_TYPES,
    ROOT,
    Object,
    needs_helm,
    needs_operator,
    pods,
    rendered,
    run,
)

pytestmark = [pytest.mark.deploy, needs_operator]

MODES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
PAGE = (ROOT / "docs/install-kubernetes.md").read_text()


def verdicts(text: str) -> dict[str, Object]:
    """By kind: the strictest standard that admits the pod, and why the next stricter one does not."""
    assert OPERATOR_TYPES
    code, said, error = run(OPERATOR_TYPES, "pod-security", said=text)
    assert code == 0, error
    found = [json.loads(line) for line in said.splitlines()]
    assert [each["pod"] for each in found] == [name for name, _ in pods(text)]
    return {each["pod"].partition("/")[0]: each for each in found}


def standards(text: str) -> dict[str, str]:
    return {kind: each["standard"] for kind, each in verdicts(text).items()}


@needs_helm
@pytest.mark.parametrize("mode", MODES)
def test_only_the_daemon_needs_the_privileged_standard(mode: str) -> None:
    found = standards(rendered(mode))
    assert found.pop("DaemonSet") == "privileged"
    assert set(found.values()) <= {"restricted"}


@needs_helm
def test_the_page_lists_what_keeps_the_daemon_out_of_the_baseline_standard() -> None:
    rows = dict(re.findall(r"^\| `(restricted-root|nonroot-filecaps|privileged)`.*\| (.+?) \|$", PAGE, re.MULTILINE))
    modes = {"restricted-root": "default", "nonroot-filecaps": "nonroot-filecaps", "privileged": "privileged"}
    assert rows.keys() == modes.keys()
    for profile, mode in modes.items():
        wrong = set()
        for reason in verdicts(rendered(mode))["DaemonSet"]["reasons"]:
            what, _, detail = reason.partition(": ")
            capabilities = re.findall(r'"([A-Z_]+)"', detail) if what == "non-default capabilities" else []
            wrong |= {*capabilities} or {f"{what} Unconfined" if what == "seccompProfile" else what.partition(" ")[0]}
        assert {*re.findall(r"`([^`]+)`", rows[profile])} == wrong, profile


@needs_helm
def test_a_pod_with_more_rights_is_noticed() -> None:
    assert standards(rendered("stack"))["Deployment"] == "restricted"
    text = rendered("stack").replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true")
    assert standards(text)["Deployment"] == "baseline"
    text = rendered("stack").replace("drop: [ALL]", "add: [NET_ADMIN]")
    assert standards(text)["Deployment"] == "privileged"
