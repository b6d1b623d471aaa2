"""deploy/kustomize: built by kustomize, compared with the API schemas, the chart and the code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from exporter import __version__
from tests.deploy.kubernetes import (
    KUSTOMIZE,
    NEWEST,
    OPERATOR_TYPES,
    Object,
    built,
    needs_helm,
    needs_kustomize,
    needs_operator,
    objects,
    only,
    pods,
    rendered,
    run,
    violations,
)

pytestmark = [pytest.mark.deploy, needs_kustomize]

GPUFAULT = Path(sys.executable).with_name("gpufault")
FOLDERS = sorted(str(path.parent.relative_to(KUSTOMIZE)) for path in KUSTOMIZE.rglob("kustomization.yaml"))
OF_THE_NODE = [name for name in FOLDERS if name != "fleet"]
FIRST = "1.31"  # that knows recursiveReadOnly without a gate


def test_every_documented_overlay_exists() -> None:
    promised = ("all-nodes", "journald", "kmsg-privileged", "plain-annotations", "prometheus-operator", "user-logs")
    assert {f"overlays/{name}" for name in promised} < {*FOLDERS}


@pytest.mark.parametrize("version", [FIRST, NEWEST])
@pytest.mark.parametrize("folder", FOLDERS)
def test_built_objects_are_valid_for_the_api(folder: str, version: str) -> None:
    assert violations(built(folder), version) == []


@needs_operator
def test_objects_are_valid_for_the_prometheus_operator() -> None:
    assert OPERATOR_TYPES
    code, said, error = run(OPERATOR_TYPES, said=built("overlays/prometheus-operator"))
    assert code == 0, error
    assert said.split() == ["PodMonitor", "1", "PrometheusRule", "1", "ServiceMonitor", "0"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_code_accepts_its_configuration_and_flags(folder: str, tmp_path: Path) -> None:
    text = built(folder)
    ((_, pod),) = pods(text)
    (container,) = pod["containers"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "config"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "config"]
    (tmp_path / "config.yaml").write_text(
        only(text, "ConfigMap", volume["configMap"]["name"])["data"][mount["subPath"]]
    )
    args = [arg.replace(mount["mountPath"], str(tmp_path / "config.yaml")) for arg in container["args"]]
    assert str(tmp_path) in " ".join(args)
    code, said, error = run(GPUFAULT, *args, "--config.check")
    assert code == 0, error
    assert "is valid" in said


@needs_helm
def test_the_base_equals_the_chart_with_default_values() -> None:
    ours, charts = daemon(built("base")), daemon(rendered("default"))
    assert ours["spec"] == charts["spec"]


@needs_helm
def test_the_privileged_overlay_equals_the_chart_profile() -> None:
    ours, charts = daemon(built("overlays/kmsg-privileged")), daemon(rendered("privileged"))
    assert ours["spec"] == charts["spec"]


def test_the_image_version_matches_the_code() -> None:
    for folder in FOLDERS:
        for name, pod in pods(built(folder)):
            assert [c["image"] for c in pod["containers"]] == [f"gpufault:{__version__}"], f"{folder}: {name}"


def test_selectors_match_the_labels_of_the_pods() -> None:
    for folder in FOLDERS:
        text = built(folder)
        for item in objects(text):
            if item["kind"] in ("DaemonSet", "Deployment"):
                labels = item["spec"]["template"]["metadata"]["labels"].items()
                assert labels >= item["spec"]["selector"]["matchLabels"].items()
                assert labels >= only(text, "Service")["spec"]["selector"].items()
                assert ("app.kubernetes.io/component", "fleet" if folder == "fleet" else "node") in labels


def test_the_stack_selects_the_monitor_and_the_rules() -> None:
    """Also as the chart labels them."""
    text, charts = built("overlays/prometheus-operator"), rendered("stack")
    for kind in ("PodMonitor", "PrometheusRule"):
        for labels in (only(text, kind)["metadata"]["labels"], only(charts, kind)["metadata"]["labels"]):
            assert labels["release"] == "kube-prometheus-stack"
    monitor = only(text, "PodMonitor")["spec"]
    assert daemon(text)["metadata"]["labels"].items() >= monitor["selector"]["matchLabels"].items()


def test_an_overlay_runs_the_daemon_on_every_node() -> None:
    base, everywhere = daemon(built("base"))["spec"], daemon(built("overlays/all-nodes"))["spec"]
    assert "nodeAffinity" in base.pop("affinity")
    assert base == everywhere


def test_prometheus_finds_pods_by_annotation() -> None:
    annotations = daemon(built("overlays/plain-annotations"))["metadata"]["annotations"]
    port = daemon(built("base"))["spec"]["containers"][0]["ports"][0]["containerPort"]
    assert annotations.items() >= {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }.items()  # fmt: skip


def test_the_journal_overlay_changes_only_the_sources() -> None:
    base, overlay = (
        yaml.safe_load((KUSTOMIZE / name / "config.yaml").read_text()) for name in ("base", "overlays/journald")
    )
    assert base.pop("sources") == [*overlay["sources"][:1], {"kind": "kmsg"}]
    assert [source.get("mode", source["kind"]) for source in overlay.pop("sources")] == ["files", "journal", "journald"]
    assert base == overlay


def daemon(text: str) -> Object:
    """The DaemonSet's pods, with what has another name in a chart's release made equal."""
    template: Object = only(text, "DaemonSet")["spec"]["template"]
    spec = template["spec"] | {"serviceAccountName": "gpufault"}
    volumes = [v if "configMap" not in v else {"name": v["name"], "configMap": {}} for v in spec["volumes"]]
    return {**template, "spec": {**spec, "volumes": volumes}}
