"""The Helm chart: rendered by Helm in each mode, held against the API's schemas and against the code that it starts."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from exporter import __version__
from exporter.cli.fleet import ADDRESS as FLEET_ADDRESS
from exporter.core.text.phrases import counted
from tests.deploy.kubernetes import (
    CHART,
    HELM,
    NEWEST,
    OLDEST,
    OPERATOR,
    OPERATOR_TYPES,
    VERSIONS,
    needs_helm,
    needs_operator,
    objects,
    only,
    rendered,
    run,
    template,
    violations,
)  # fmt: skip

pytestmark = [pytest.mark.deploy, needs_helm]

GPUFAULT = Path(sys.executable).with_name("gpufault")


def values(mode: str) -> Path:
    return CHART / f"ci/{mode}-values.yaml"


MODES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))


def test_helm_lint_passes() -> None:
    assert HELM
    for mode in MODES:
        code, said, error = run(HELM, "lint", "--strict", "--kube-version", NEWEST, "--values", values(mode), CHART)
        assert code == 0, f"{mode}: {said}{error}"


@pytest.mark.heavy
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", MODES)
def test_rendered_objects_are_valid_for_the_api(mode: str, version: str) -> None:
    text = rendered(mode, version)
    assert {"ConfigMap", "DaemonSet"} <= {item["kind"] for item in objects(text)}
    assert violations(text, version) == []


def test_the_schemas_reject_unknown_fields_and_invalid_values() -> None:
    text = rendered("default")
    misspelt = text.replace("readOnlyRootFilesystem", "readonlyRootFilesystem").replace(
        "containerPort: 9873", "containerPort: http"
    )
    told = "\n".join(violations(misspelt, NEWEST))
    assert "'readonlyRootFilesystem' was unexpected" in told
    assert "'http' is not of type 'integer'" in told


@needs_operator
@pytest.mark.parametrize("mode", MODES)
def test_objects_are_valid_for_the_prometheus_operator(mode: str) -> None:
    assert OPERATOR_TYPES
    code, said, error = run(OPERATOR_TYPES, said=rendered(mode))
    assert code == 0, error
    of_operator = [item["kind"] for item in objects(rendered(mode)) if item["apiVersion"] == OPERATOR]
    assert said.split() == [
        str(word)
        for kind in ("PodMonitor", "PrometheusRule", "ServiceMonitor")
        for word in (kind, of_operator.count(kind))
    ]


@needs_operator
def test_the_operator_schemas_reject_unknown_fields() -> None:
    assert OPERATOR_TYPES
    code, _, error = run(OPERATOR_TYPES, said=rendered("operator").replace("jobLabel", "jobLable"))
    assert code == 1
    assert 'PodMonitor: error unmarshaling JSON: while decoding JSON: json: unknown field "jobLable"' in error


DASHBOARDS = [f"gpu-gpufault-dashboard-{path.stem}" for path in (CHART / "files/dashboards").iterdir()]


def test_alerts_link_to_the_configured_pages() -> None:
    rules = only(rendered("operator"), "PrometheusRule")["spec"]["groups"]
    alerts = [rule["annotations"] for group in rules for rule in group["rules"] if "alert" in rule]
    assert alerts
    assert [a for a in alerts if not a["runbook_url"].startswith("https://docs.example.com/gpufault/runbooks/")] == []
    assert "example.org" not in str(alerts)


def test_dashboards_link_to_the_configured_pages() -> None:
    boards = [text for name in DASHBOARDS for text in only(rendered("operator"), "ConfigMap", name)["data"].values()]
    assert all("https://docs.example.com/gpufault/runbooks/" in board for board in boards)
    assert "example.org" not in str(boards)


def test_every_dashboard_of_the_chart_becomes_a_configmap(tmp_path: Path) -> None:
    copy = tmp_path / "gpufault"
    shutil.copytree(CHART, copy)
    shutil.rmtree(copy / "files", ignore_errors=True)
    code, _, error = template("--set", "grafanaDashboards.enabled=true", chart=copy)
    assert code != 0
    assert "this chart holds no files/dashboards" in error
    (copy / "files/dashboards").mkdir(parents=True)
    board = {"title": "Fleet {{ instance }}", "panels": []}
    (copy / "files/dashboards/fleet.json").write_text(json.dumps(board, indent=2))
    code, text, error = template("--set", "grafanaDashboards.enabled=true", chart=copy)
    assert code == 0, error
    made = only(text, "ConfigMap", "gpu-gpufault-dashboard-fleet")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"]["fleet.json"]) == board


def test_every_operator_kind_is_rendered_in_some_mode() -> None:
    kinds = {item["kind"] for mode in MODES for item in objects(rendered(mode))}
    assert kinds >= {"PodMonitor", "ServiceMonitor", "PrometheusRule", "NetworkPolicy", "PersistentVolumeClaim", "Pod"}


def test_a_cluster_that_is_too_old_is_rejected() -> None:
    code, _, error = template(version="1.24")
    assert code != 0
    assert "requires kubeVersion: >=1.25" in error


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("securityProfile: root", "'/securityProfile': value must be one of 'restricted-root', 'nonroot-filecaps'"),
        ("securityprofile: privileged", "additional properties 'securityprofile' not allowed"),
        ("config: {incident: {}}", "'/config': additional properties 'incident' not allowed"),
        ("config: {incidents: {settle: 15}}", "'/config/incidents/settle': got number, want string"),
        ("config: {incidents: {settle: 15 s}}", "'/config/incidents/settle': '15 s' does not match pattern"),
        ("config: {sources: [{kind: files, path: [/a]}]}", "'/config/sources/0': missing property 'paths'"),
        ("config: {sources: [{kind: files, paths: [a]}]}", "'/config/sources/0/paths/0': 'a' does not match pattern"),
        ("config: {sources: [{kind: dmesg}]}", "value must be one of 'files', 'journald', 'kmsg'"),
        ("config: {facts: {extra: {rack: 12}}}", "'/config/facts/extra/rack': got number, want string"),
        ("config: {journal: {max_bytes: 268435456}}", "'/config/journal/max_bytes': got number, want string"),
        ("image: {registry: registry.example.org/}", "'/image/registry'"),
        ("image: {digest: sha256:0123}", "'/image/digest': 'sha256:0123' does not match pattern"),
        ("seccompProfile: {type: Localhost}", "'/seccompProfile/localhostProfile': minLength: got 0, want 1"),
        ("seccompProfile: {type: Unconfined}", "'/seccompProfile/type'"),
        ("extraHostPaths: [scratch]", "'/extraHostPaths/0': 'scratch' does not match pattern"),
        ("signatures: {packs: {site: ''}}", "invalid propertyName 'site'"),
        ("port: 98730", "'/port': maximum: got 98,730, want 65,535"),
        ("updateStrategy: {rollingUpdate: {maxUnavailable: ten}}", "'/updateStrategy/rollingUpdate/maxUnavailable'"),
        ("podMonitor: {enabled: 'yes'}", "'/podMonitor/enabled': value must be one of 'auto', true, false"),
        ("resources: {limits: {memory: foo}}", "'/resources/limits/memory': 'foo' does not match pattern"),
        ("fleet: {resources: {requests: {cpu: 1 core}}}", "'/fleet/resources/requests/cpu'"),
        ("tolerations: [{operator: Exist}]", "'/tolerations/0/operator': value must be one of 'Exists', 'Equal'"),
        ("tolerations: [{operator: Exists, value: x}]", "'/tolerations/0'"),
        ("tolerations: [{value: x}]", "'/tolerations/0': missing property 'key'"),
        ("tolerations: [{key: x, efect: NoSchedule}]", "additional properties 'efect' not allowed"),
        ("fullnameOverride: a.b", "'/fullnameOverride': 'a.b' does not match pattern"),
        ("extraArgs: [--web.listen-address=:1]", "'/extraArgs/0': 'not' failed"),
        ("hostUsers: false", "'/hostUsers': value must be one of <nil>, true"),
        ("nodes: some", "'/nodes': value must be one of 'gpu', 'all'"),
        ("outputs: {webhook: {keySecret: {name: x}}}", "additional properties 'keySecret' not allowed"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_rejected_at_install_with_its_location(wrong: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(wrong)
    code, said, error = template("--values", file)
    assert code != 0, said
    assert "values don't meet the specifications of the schema" in error
    assert told in error


def test_every_schema_key_is_documented_with_its_default() -> None:
    """The other way round Helm holds it: a value that is not in the schema is refused."""
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    open_ones = {
        "config",
        "fleet.config",
        "resources",
        "fleet.resources",
        "nodeConditions.resources",
        "seLinuxOptions",
        "updateStrategy.rollingUpdate",
    }

    def missing(schema: dict[str, Any], values: dict[str, Any], above: str = "") -> list[str]:
        found = []
        for key, part in schema["properties"].items():
            name = above + key
            if key not in values:
                found.append(name)
            elif "properties" in part and name not in open_ones:
                found += missing(part, values[key], f"{name}.")
        return found

    assert missing(json.loads((CHART / "values.schema.json").read_text()), given) == []


def test_every_documented_key_is_used_by_a_template() -> None:
    used = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    names = [*given, *given["fleet"], *given["kubePrometheusStack"], *given["access"], *given["web"]]
    assert [key for key in names if not re.search(rf"\.{key}\b", used)] == []


@pytest.mark.parametrize("mode", MODES)
def test_the_daemon_accepts_its_configuration_packs_and_flags(mode: str, tmp_path: Path) -> None:
    text = rendered(mode)
    config = only(text, "ConfigMap", name_of(text, "-config"))["data"]["config.yaml"]
    for item in objects(text):
        if item["kind"] == "ConfigMap" and item["metadata"]["name"].endswith("gpufault-signatures"):
            mount_as_the_kubelet_does(tmp_path / "signatures.d", item["data"])
    config = config.replace("/etc/gpufault/signatures.d", str(tmp_path / "signatures.d"))
    mount_outputs(tmp_path / "outputs", config)
    config = config.replace("/etc/gpufault/outputs", str(tmp_path / "outputs"))
    (tmp_path / "config.yaml").write_text(config)
    args = only(text, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["args"]
    here = [a.replace("/etc/gpufault/config.yaml", str(tmp_path / "config.yaml")) for a in args]
    here = [a for a in here if not a.startswith("--web.config.file")]  # it is in a Secret that is not ours
    code, said, error = run(GPUFAULT, *here, "--config.check")
    assert code == 0, error
    assert counted(len(yaml.safe_load(config)["sources"]), "source") in said


@pytest.mark.parametrize("mode", [mode for mode in MODES if "fleet:" in values(mode).read_text()])
def test_the_fleet_service_accepts_its_configuration_and_flags(mode: str, tmp_path: Path) -> None:
    text = rendered(mode)
    (container,) = only(text, "Deployment")["spec"]["template"]["spec"]["containers"]
    (name,) = [i["metadata"]["name"] for i in objects(text) if i["metadata"]["name"].endswith("-fleet-config")]
    (tmp_path / "fleet.yaml").write_text(only(text, "ConfigMap", name)["data"]["fleet.yaml"])
    here = [arg.replace("/etc/gpufault/fleet.yaml", str(tmp_path / "fleet.yaml")) for arg in container["args"]]
    here = [arg for arg in here if not arg.startswith(("--web.config.file", "--signatures.dir"))]
    code, said, error = run(GPUFAULT, *here, "--config.check")
    assert code == 0, error
    assert "is valid: http" in said
    assert f"--web.listen-address={FLEET_ADDRESS}" in container["args"]


def test_the_chart_installs_a_site_pack() -> None:
    text = rendered("site")
    config = yaml.safe_load(only(text, "ConfigMap", "gpufault-config")["data"]["config.yaml"])
    assert config["signatures"] == {"dirs": ["/etc/gpufault/signatures.d"]}
    mounts = only(text, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "signatures", "mountPath": "/etc/gpufault/signatures.d", "readOnly": True} in mounts


@pytest.mark.parametrize(
    "change",
    ["config.incidents.settle=20s", "signatures.packs.a\\.yaml=pack: a", "jobProcesses.enabled=true"],
)
def test_pods_restart_when_their_configuration_changes(change: str) -> None:
    code, text, error = template("--set-string" if "=true" not in change else "--set", change)
    assert code == 0, error

    def annotations(of: str) -> dict[str, str]:
        return only(of, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]  # type: ignore[no-any-return]

    before, after = annotations(rendered("default")), annotations(text)
    assert before.keys() == after.keys()
    assert [key for key in before if before[key] != after[key]] != []


def test_series_have_the_labels_that_the_correlator_needs() -> None:
    _, usage, _ = run(GPUFAULT, "correlate", "--help")
    assert 'job="gpufault"' in usage
    text = rendered("operator")
    monitor, pods = only(text, "PodMonitor")["spec"], only(text, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert pods[monitor["jobLabel"]] == "gpufault"
    assert pods.items() >= monitor["selector"]["matchLabels"].items()
    assert monitor["podMetricsEndpoints"][0]["relabelings"] == [
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}
    ]


@pytest.mark.parametrize("mode", MODES)
def test_commands_metrics_and_objects_in_the_notes_exist(mode: str, tmp_path: Path) -> None:
    notes = notes_of(mode, tmp_path / "gpufault")
    assert "<no value>" not in notes
    metrics = (CHART.parents[2] / "docs/metrics.md").read_text()
    named = set(re.findall(r"gpufault_\w+_(?:total|seconds|info)", notes))
    assert "gpufault_incidents_total" in named
    assert [name for name in named if f"| `{name}` |" not in metrics] == []
    there = {(item["kind"].lower(), item["metadata"]["name"]) for item in objects(rendered(mode))}
    assert set(re.findall(r"\b(daemonset|service)/([a-z-]+)", notes)) <= there
    commands = re.findall(r"-- \\\n +gpufault (inject .*)", notes)
    assert len(commands) == (0 if mode in ("nonroot-filecaps", "site") else 1)
    _, usage, _ = run(GPUFAULT, "inject", "--help")
    assert [flag for command in commands for flag in re.findall(r"--\w+", command) if flag not in usage] == []


@pytest.mark.parametrize("mode", ["default", "stack", "little"])
def test_the_notes_name_a_value_for_each_thing_that_is_off(mode: str, tmp_path: Path) -> None:
    notes = notes_of(mode, tmp_path / "gpufault")
    off = re.search(r"^Off: (.*?)^ +Each with: ", notes, re.DOTALL | re.MULTILINE)
    assert off
    named = re.findall(r" ([\w.]+=true)$", off[1], re.MULTILINE)
    assert len(named) == len(off[1].splitlines()) >= 3
    code, _, error = template("--values", values(mode), *(part for name in named for part in ("--set", name)))
    assert code == 0 or (mode == "little" and "service.enabled" in error), error


def test_the_chart_has_what_catalogues_show() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart.keys() >= {"home", "sources", "maintainers", "icon", "keywords", "description"}
    changes = yaml.safe_load(chart["annotations"]["artifacthub.io/changes"])
    assert {change["kind"] for change in changes} <= {"added", "changed", "deprecated", "removed", "fixed", "security"}
    (image,) = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert image["image"] == f"gpufault:{__version__}"


def test_chart_and_image_versions_match_the_code() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
    image = only(rendered("default"), "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == f"gpufault:{__version__}"
    pinned = only(rendered("site"), "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert pinned == "registry.example.org/hpc/gpufault@sha256:" + "0123456789abcdef" * 4


def test_fields_unknown_to_a_cluster_are_omitted() -> None:
    assert "recursiveReadOnly" not in rendered("site", OLDEST)
    assert "appArmorProfile" not in rendered("site", OLDEST)
    assert "recursiveReadOnly: IfPossible" in rendered("site", NEWEST)
    assert "appArmorProfile: {type: Unconfined}" in rendered("site", NEWEST)


def name_of(text: str, end: str) -> str:
    (name,) = [
        item["metadata"]["name"]
        for item in objects(text)
        if item["metadata"]["name"].endswith(end) and "-fleet-" not in item["metadata"]["name"]
    ]
    return str(name)


def mount_as_the_kubelet_does(folder: Path, data: dict[str, str]) -> None:
    """A ConfigMap's volume: files in a hidden folder of this version, a link to that, and a link to each file."""
    version = folder / "..2026_01_01_00_00_00.123456789"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, text in data.items():
        (version / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")


def mount_outputs(folder: Path, config: str) -> None:
    """The files that Secrets of the outputs would have."""
    texts = {
        "urlSecret": "https://hooks.example.org/T0/B0\n",
        "headersSecret": "Authorization: Bearer t0ken\n",
        "signingSecret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "caSecret": trustme.CA().cert_pem.bytes().decode(),
    }
    for output, kind in re.findall(r"/etc/gpufault/outputs/(\w+)/(\w+)", config):
        (folder / output).mkdir(parents=True, exist_ok=True)
        (folder / output / kind).write_text(texts[kind])


def notes_of(mode: str, chart: Path) -> str:
    """What `helm install` prints at its end. `helm template` leaves it out, so here it is a value of an object."""
    shutil.copytree(CHART, chart)
    text = (chart / "templates/NOTES.txt").read_text()
    (chart / "templates/NOTES.txt").unlink()
    (chart / "templates/notes.yaml").write_text(
        '{{ define "notes" }}' + text + '{{ end }}{"notes": {{ include "notes" . | toJson }}}'
    )
    code, said, error = template("--values", values(mode), "--show-only", "templates/notes.yaml", chart=chart)
    assert code == 0, error
    (made,) = objects(said)
    return str(made["notes"])
