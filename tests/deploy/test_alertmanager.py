"""The Alertmanager example: valid, and each alert goes where it should."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.programs import needs

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIG = DEPLOY / "alertmanager/alertmanager.yml"
GROUPS = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text(encoding="utf-8"))["groups"]
SEVERITIES = {r["alert"]: r["labels"]["severity"] for group in GROUPS for r in group["rules"] if "alert" in r}
RECEIVERS = {"critical": "pager", "warning": "tickets", "info": "digest"}

pytestmark = [
    pytest.mark.deploy,
    needs("amtool"),
]


def amtool(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(["amtool", *arguments], check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_alertmanager_accepts_the_example() -> None:
    code, said = amtool("check-config", CONFIG)
    assert code == 0, said


@pytest.mark.parametrize(("alert", "severity"), SEVERITIES.items())
def test_an_alert_is_routed_by_severity(alert: str, severity: str) -> None:
    route = ("config", "routes", "test", f"--config.file={CONFIG}", f"--verify.receivers={RECEIVERS[severity]}")
    code, said = amtool(*route, f"alertname={alert}", f"severity={severity}", "cluster=a", "root_cause=c")
    assert code == 0, said


def test_other_alerts_do_not_page() -> None:
    route = ("config", "routes", "test", f"--config.file={CONFIG}", "--verify.receivers=tickets")
    code, said = amtool(*route, "alertname=NodeDown", "severity=critical")
    assert code == 0, said


def test_inhibitions_name_existing_alerts_and_never_silence_a_crash_page() -> None:
    for rule in yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["inhibit_rules"]:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            names = set(matcher.split('"')[1].split("|"))
            assert names <= SEVERITIES.keys()
        assert [name for name in names if SEVERITIES[name] == "critical"] == []
