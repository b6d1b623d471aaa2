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
