"""The chart's reporter of node conditions: its flags are those of the program, and it finds the daemons by the Service."""

from __future__ import annotations

import pytest

from exporter.cli.main import _parser
from exporter.cli.node_conditions import ADDRESS
from tests.deploy.kubernetes import needs_helm, only, rendered, template

pytestmark = [pytest.mark.deploy, needs_helm]


def test_the_program_accepts_its_flags_and_asks_the_daemons_of_the_service() -> None:
    text = rendered("conditions")
    (container,) = only(text, "Deployment")["spec"]["template"]["spec"]["containers"]
    options = _parser("node-conditions").parse_args(container["args"])
    service = only(text, "Service")
    assert options.pull_dns == [f"{service['metadata']['name']}.gpu.svc:{service['spec']['ports'][0]['port']}"]
    assert service["spec"]["clusterIP"] == "None"
    assert options.web_listen_address == [ADDRESS]
    assert options.pull_user == "conditions"


def test_without_the_service_it_is_rejected() -> None:
    code, _, error = template("--set", "nodeConditions.enabled=true", "--set", "service.enabled=false")
    assert code != 0
    assert "nodeConditions.enabled needs service.enabled" in error


def test_it_is_off_by_default() -> None:
    assert "node-conditions" not in rendered("default")


def test_it_asks_with_tokens_of_the_key_that_the_chart_made() -> None:
    enabled = ("--set", "nodeConditions.enabled=true", "--set", "kubePrometheusStack.enabled=true")
    code, text, error = template(*enabled, "--set", "networkPolicy.enabled=true")
    assert code == 0, error
    pod = only(text, "Deployment", "gpu-gpufault-conditions")["spec"]["template"]["spec"]
    options = _parser("node-conditions").parse_args(pod["containers"][0]["args"])
    assert (options.pull_user, options.pull_token_key_file) == (None, "/etc/gpufault/keys/private-key.pem")
    (volume,) = pod["volumes"]
    assert volume["secret"]["secretName"] == only(text, "Secret", "gpu-gpufault-keys")["metadata"]["name"]
    assert [item["key"] for item in volume["secret"]["items"]] == ["private-key.pem"]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "keys", "mountPath": "/etc/gpufault/keys", "readOnly": True}
    ]


def test_a_policy_of_the_daemons_admits_it() -> None:
    enabled = ("--set", "nodeConditions.enabled=true", "--set", "networkPolicy.enabled=true")
    code, text, error = template(*enabled, "--set-json", 'networkPolicy.from=[{"podSelector": {}}]')
    assert code == 0, error
    (rule,) = only(text, "NetworkPolicy")["spec"]["ingress"]
    admitted = [peer["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/component") for peer in rule["from"]]
    assert "conditions" in admitted
