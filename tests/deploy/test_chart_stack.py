"""What the one value kubePrometheusStack.enabled turns on, and what follows from values in other objects."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml

from exporter.net.tokens import is_valid, public_keys, sign
from tests.deploy.api_server import ApiServer, serving
from tests.deploy.kubernetes import CHART, needs_helm, objects, only, pods, rendered, template

pytestmark = [pytest.mark.deploy, needs_helm]


def made(tmp_path: Path, **values: Any) -> str:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    code, text, error = template("--values", tmp_path / "values.yaml")
    assert code == 0, error
    return text


def kinds(text: str) -> list[str]:
    return sorted(
        {item["kind"] for item in objects(text) if "helm.sh/hook" not in item["metadata"].get("annotations", {})}
    )


STACK: dict[str, Any] = {"kubePrometheusStack": {"enabled": True, "release": "monitoring"}}
NEW = ["Deployment", "PodMonitor", "PrometheusRule", "Role", "RoleBinding", "Secret", "ServiceMonitor"]


def test_one_value_turns_on_monitor_rules_dashboards_and_fleet(tmp_path: Path) -> None:
    text = made(tmp_path, **STACK)
    assert kinds(text) == sorted([*kinds(rendered("default")), *NEW])
    selected = [i for i in objects(text) if i["apiVersion"] == "monitoring.coreos.com/v1"]
    assert {item["metadata"]["labels"]["release"] for item in selected} == {"monitoring"}
    boards = [i for i in objects(text) if "grafana_dashboard" in i["metadata"].get("labels", {})]
    assert len(boards) == 4
    assert {board["metadata"]["annotations"]["grafana_folder"] for board in boards} == {"gpufault"}


@pytest.mark.parametrize(
    ("off", "kind"),
    [
        ({"prometheusRule": {"enabled": False}}, {"PrometheusRule"}),
        ({"fleet": {"enabled": False}}, {"Deployment", "Role", "RoleBinding", "Secret", "ServiceMonitor"}),
        ({"fleet": {"serviceMonitor": {"enabled": False}}}, {"ServiceMonitor"}),
        ({"podMonitor": {"enabled": False}}, {"PodMonitor"}),
    ],
)
def test_each_part_can_be_turned_off(off: dict[str, Any], kind: set[str], tmp_path: Path) -> None:
    assert set(kinds(made(tmp_path, **STACK))) - set(kinds(made(tmp_path, **STACK, **off))) == kind


def test_a_service_monitor_replaces_the_pod_monitor(tmp_path: Path) -> None:
    text = made(tmp_path, **STACK, serviceMonitor={"enabled": True})
    assert "PodMonitor" not in kinds(text)
    assert only(text, "ServiceMonitor", "gpu-gpufault")["metadata"]["labels"]["release"] == "monitoring"


def test_the_fleet_service_pulls_the_journals_of_the_daemons_behind_their_service(tmp_path: Path) -> None:
    text = made(tmp_path, fleet={"enabled": True}, port=9999)
    config = yaml.safe_load(only(text, "ConfigMap", "gpu-gpufault-fleet-config")["data"]["fleet.yaml"])
    assert config["pull"] == {
        "dns": ["gpu-gpufault.gpu.svc:9999"], "dns_names": "kubernetes",
        "token_key_file": "/etc/gpufault/keys/private-key.pem",
    }  # fmt: skip
    service = only(text, "Service", "gpu-gpufault")["spec"]
    assert (service["clusterIP"], service["ports"][0]["port"]) == ("None", 9999)


def secret(text: str, name: str) -> dict[str, bytes]:
    data = only(text, "Secret", f"gpu-gpufault-{name}")["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def test_the_password_that_is_made_opens_the_fleets_pages_alone(tmp_path: Path) -> None:
    text = made(tmp_path, **STACK)
    data = secret(text, "access")
    users = yaml.safe_load(data["web-config.yaml"])["basic_auth_users"]
    assert list(users) == [data["username"].decode()] == ["gpufault"]
    assert len(data["password"]) == 32
    assert bcrypt.checkpw(data["password"], users["gpufault"].encode())
    (endpoint,) = only(text, "ServiceMonitor", "gpu-gpufault-fleet")["spec"]["endpoints"]
    assert endpoint["basicAuth"]["password"] == {"name": "gpu-gpufault-access", "key": "password"}
    (endpoint,) = only(text, "PodMonitor", "gpu-gpufault")["spec"]["podMetricsEndpoints"]
    assert "basicAuth" not in endpoint  # each daemon would see it
    assert endpoint["scheme"] == "http"


def test_the_keys_that_are_made_sign_tokens_for_one_node(tmp_path: Path) -> None:
    data = secret(made(tmp_path, **STACK), "keys")
    assert yaml.safe_load(data["web-config.yaml"]) == {"token_keys_file": "public-keys.pem"}
    public = public_keys(data["public-keys.pem"].decode())
    token = sign(data["private-key.pem"].decode(), ["10.0.0.3"])
    assert len(public) == 1
    assert is_valid(token, public, "n3", "10.0.0.3")
    assert not is_valid(token, public, "n7", "10.0.0.7")


def test_the_daemon_has_public_keys_only(tmp_path: Path) -> None:
    mounted = {}
    for name, pod in pods(made(tmp_path, **STACK)):
        secrets = [volume["secret"] for volume in pod.get("volumes", ()) if "secret" in volume]
        mounted[name.partition("/")[0]] = sorted(item["key"] for each in secrets for item in each["items"])
    assert mounted["DaemonSet"] == ["public-keys.pem", "web-config.yaml"]
    assert mounted["Deployment"] == ["private-key.pem", "web-config.yaml"]


def test_a_secret_of_the_site_replaces_the_password_that_is_made(tmp_path: Path) -> None:
    text = made(tmp_path, **STACK, access={"existingSecret": "ours", "existingKeysSecret": "keys", "user": "fleet"})
    assert "Secret" not in kinds(text)
    assert {
        volume["secret"]["secretName"]
        for _, pod in pods(text)
        for volume in pod.get("volumes", ())
        if "secret" in volume
    } == {"ours", "keys"}


def test_with_tls_of_the_site_the_fleet_service_asks_over_tls(tmp_path: Path) -> None:
    pull = {
        "user": "fleet",
        "password_file": "/etc/gpufault/secrets/password",
        "tls": {"ca_file": "/etc/gpufault/secrets/ca.crt"},
        "server_name": "gpufault",
    }
    monitor = {"tlsConfig": {"serverName": "gpufault"}, "basicAuth": {"username": {"name": "s", "key": "u"}}}
    text = made(
        tmp_path, **STACK, web={"existingSecret": "web"}, podMonitor=monitor,
        fleet={"existingSecret": "fleet", "config": {"pull": pull}},
    )  # fmt: skip
    config = yaml.safe_load(only(text, "ConfigMap", "gpu-gpufault-fleet-config")["data"]["fleet.yaml"])
    found = {"dns": ["gpu-gpufault.gpu.svc:9873"], "dns_names": "kubernetes", "scheme": "https"}
    assert config["pull"] == {**pull, **found}
    assert only(text, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["scheme"] == "https"
    assert "Secret" not in kinds(text)


def test_with_readers_everyone_nobody_needs_a_password(tmp_path: Path) -> None:
    text = made(tmp_path, **STACK, web={"readers": "everyone"})
    assert "Secret" not in kinds(text)
    ((_, pod),) = [found for found in pods(text) if found[0].startswith("DaemonSet")]
    assert "--web.readers=everyone" in pod["containers"][0]["args"]


def test_the_daemon_runs_on_nodes_with_a_gpu_unless_the_site_selects_them(tmp_path: Path) -> None:
    def affinity(**values: Any) -> Any:
        return only(made(tmp_path, **values), "DaemonSet")["spec"]["template"]["spec"].get("affinity")

    required = affinity()["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = {term["matchExpressions"][0]["key"] for term in required["nodeSelectorTerms"]}
    assert keys >= {"nvidia.com/gpu.present", "amd.com/gpu.family", "feature.node.kubernetes.io/pci-1200_1002.present"}
    assert affinity(nodes="all") is None
    assert affinity(nodeSelector={"pool": "gpu"}) is None
    other = {"podAntiAffinity": {}}
    assert set(affinity(affinity=other)) == {"nodeAffinity", "podAntiAffinity"}
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    assert affinity(affinity=own) == own


def test_a_policy_admits_the_test_pod_and_the_fleet_service(tmp_path: Path) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    policy = {"enabled": True, "from": peers}
    text = made(tmp_path, networkPolicy=policy, fleet={"enabled": True, "networkPolicy": policy})

    def admitted(name: str) -> list[str]:
        (rule,) = only(text, "NetworkPolicy", name)["spec"]["ingress"]
        assert rule["from"][0] == peers[0]
        return [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"][1:]]

    assert admitted("gpu-gpufault") == ["fleet", "test"]
    assert admitted("gpu-gpufault-fleet") == ["test"]
    labels = {name.partition("/")[0]: item for name, item in _labels(text)}
    assert labels["Pod"]["app.kubernetes.io/component"] == "test"
    pull, names, server = only(text, "NetworkPolicy", "gpu-gpufault-fleet")["spec"]["egress"]
    assert [port["port"] for port in server["ports"]] == [443, 6443]
    assert pull["ports"] == [{"port": 9873, "protocol": "TCP"}]
    assert labels["DaemonSet"].items() >= pull["to"][0]["podSelector"]["matchLabels"].items()
    assert [port["port"] for port in names["ports"]] == [53, 53]


def _labels(text: str) -> list[tuple[str, dict[str, str]]]:
    return [
        (item["kind"], (item if item["kind"] == "Pod" else item["spec"]["template"])["metadata"]["labels"])
        for item in objects(text)
        if item["kind"] in ("Pod", "DaemonSet", "Deployment")
    ]


def test_the_job_label_follows_the_name(tmp_path: Path) -> None:
    prometheus = {"prometheus": {"url": "http://p:9090"}}
    text = made(tmp_path, nameOverride="my-gpufault", fleet={"enabled": True, "config": prometheus})
    config = yaml.safe_load(only(text, "ConfigMap", "gpu-my-gpufault-fleet-config")["data"]["fleet.yaml"])
    assert config["prometheus"]["selector"] == 'job="my-gpufault"'


def test_global_values_are_honoured(tmp_path: Path) -> None:
    shared = {"imageRegistry": "mirror.example.org", "imagePullSecrets": ["a", {"name": "b"}]}
    text = made(tmp_path, **{"global": shared}, image={"registry": "ignored.example.org"}, fleet={"enabled": True})
    for name, pod in pods(text):
        for container in pod["containers"]:
            assert container["image"].startswith("mirror.example.org/gpufault:"), name
        assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}], name


def test_the_kubelet_is_asked_at_the_socket_that_is_mounted() -> None:
    text = rendered("site")
    config = yaml.safe_load(only(text, "ConfigMap", "gpufault-config")["data"]["config.yaml"])
    socket = Path(config["jobs"]["pod_resources"])
    mounts = only(text, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    (mount,) = [each for each in mounts if each["name"] == "pod-resources"]
    assert (str(socket.parent), mount["readOnly"]) == (mount["mountPath"], True)
    assert "pod_resources" not in rendered("default")


def test_credentials_of_outputs_come_from_secrets() -> None:
    text = rendered("site")
    config = yaml.safe_load(only(text, "ConfigMap", "gpufault-config")["data"]["config.yaml"])
    assert config["outputs"]["otlp"] == {
        "url": "https://otel.example.org:4318/v1/logs",
        "resource": {"k8s.cluster.name": "prod"},
        "headers_file": "/etc/gpufault/outputs/otlp/headersSecret",
        "tls": {"ca_file": "/etc/gpufault/outputs/otlp/caSecret"},
    }
    assert config["outputs"]["webhook"] == {
        "url_file": "/etc/gpufault/outputs/webhook/urlSecret",
        "secret_file": "/etc/gpufault/outputs/webhook/signingSecret",
    }
    for kind in ("DaemonSet", "Job"):
        pod = only(text, kind)["spec"]["template"]["spec"]
        (volume,) = [v for v in pod["volumes"] if v["name"] == "outputs"]
        items = {
            (source["secret"]["name"], item["key"]): item["path"]
            for source in volume["projected"]["sources"]
            for item in source["secret"]["items"]
        }
        assert items == {
            ("otlp-token", "headers"): "otlp/headersSecret",
            ("otlp-token", "ca.crt"): "otlp/caSecret",
            ("hook", "url"): "webhook/urlSecret",
            ("hook", "signing"): "webhook/signingSecret",
        }
        for container in pod["containers"]:
            assert {"name": "outputs", "mountPath": "/etc/gpufault/outputs", "readOnly": True} in container[
                "volumeMounts"
            ]


def test_the_job_before_an_upgrade_checks_what_the_upgrade_installs() -> None:
    text = rendered("site")
    job = only(text, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    containers = {container["name"]: container["args"] for container in job["spec"]["template"]["spec"]["containers"]}
    assert {name: args[:2] for name, args in containers.items()} == {
        "config": ["run", "--config.check"],
        "signatures": ["signatures", "check"],
        "fleet": ["fleet", "--config.check"],
    }
    data = only(text, "ConfigMap", "gpufault-check")["data"]
    assert data["config.yaml"] == only(text, "ConfigMap", "gpufault-config")["data"]["config.yaml"]
    assert data["fleet.yaml"] == only(text, "ConfigMap", "gpufault-fleet-config")["data"]["fleet.yaml"]
    packs = [only(text, "ConfigMap", name)["data"] for name in ("gpufault-check-signatures", "gpufault-signatures")]
    assert packs[0] == packs[1]


def test_overrides_are_laid_over_what_the_chart_sets() -> None:
    spec = only(rendered("site"), "DaemonSet")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["readinessProbe"]["periodSeconds"] == 30
    assert container["readinessProbe"]["exec"]["command"][-1] == "127.0.0.1:9873/-/ready"
    assert container["securityContext"]["procMount"] == "Default"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (spec["revisionHistoryLimit"], pod["runtimeClassName"], pod["dnsPolicy"], pod["hostUsers"]) == (
        3, "runc", "Default", True,
    )  # fmt: skip
    assert only(rendered("site"), "Deployment")["spec"]["template"]["spec"]["hostUsers"] is False
    assert only(rendered("site"), "ConfigMap", "gpu-site")


def test_the_volume_of_the_fleet_service_survives_an_uninstallation() -> None:
    claim = only(rendered("site"), "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_openshift_grants_what_the_pods_need_and_no_more() -> None:
    text = rendered("openshift")
    constraints = only(text, "SecurityContextConstraints")
    ((_, pod),) = [found for found in pods(text) if found[0].startswith("DaemonSet")]
    (container,) = pod["containers"]
    accounts = sorted({each["serviceAccountName"] for _, each in pods(text)})
    assert constraints["users"] == [f"system:serviceaccount:gpu:{account}" for account in accounts]
    assert constraints["allowedCapabilities"] == container["securityContext"]["capabilities"]["add"] == ["SYSLOG"]
    assert container["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    granted = ("allowHostPID", "allowHostIPC", "allowHostNetwork", "allowHostPorts", "allowPrivilegedContainer")
    assert [constraints[key] for key in (*granted, "allowPrivilegeEscalation")] == [False] * 6
    used = {kind for _, pod in pods(text) for volume in pod.get("volumes", ()) for kind in volume.keys() - {"name"}}
    assert used <= {*constraints["volumes"]}


def test_on_openshift_the_reporter_of_conditions_needs_no_constraints_of_its_own() -> None:
    """restricted-v2, which every account may use, refuses a user or group outside the namespace's range."""
    code, text, error = template("--values", CHART / "ci/openshift-values.yaml", "--set", "nodeConditions.enabled=true")
    assert code == 0, error
    ((_, reporter),) = [found for found in pods(text) if "conditions" in found[0]]
    assert reporter["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert reporter["serviceAccountName"] not in str(only(text, "SecurityContextConstraints")["users"])


def looked_up(server: ApiServer, *options: str) -> str:
    """The chart, with what its `lookup` finds in a cluster."""
    stack = ("--set", "kubePrometheusStack.enabled=true", "--dry-run=server", "--kube-apiserver", server.url)
    code, text, error = template(*stack, *options)
    assert code == 0, error
    return text


def test_an_upgrade_keeps_the_password_and_its_hash() -> None:
    """Another hash of the same password would be another web configuration."""
    first, keys = (only(rendered("stack"), "Secret", f"gpu-gpufault-{name}") for name in ("access", "keys"))
    with serving() as server:
        server.put("/api/v1/namespaces/gpu/secrets/gpu-gpufault-access", first)
        server.put("/api/v1/namespaces/gpu/secrets/gpu-gpufault-keys", keys)
        kept, renamed = looked_up(server), looked_up(server, "--set", "access.user=fleet")
    assert only(kept, "Secret", "gpu-gpufault-access")["data"] == first["data"]
    assert only(kept, "Secret", "gpu-gpufault-keys")["data"] == keys["data"]
    another = {key: value.decode() for key, value in secret(renamed, "access").items()}
    assert another["password"] == base64.b64decode(first["data"]["password"]).decode()
    users = yaml.safe_load(another["web-config.yaml"])["basic_auth_users"]
    assert list(users) == ["fleet"]
    assert bcrypt.checkpw(another["password"].encode(), users["fleet"].encode())


def test_an_installation_makes_a_password() -> None:
    with serving() as server:
        made_twice = [looked_up(server) for _ in range(2)]
    for name, key in (("access", "password"), ("keys", "private-key.pem")):
        assert secret(made_twice[0], name)[key] != secret(made_twice[1], name)[key]
