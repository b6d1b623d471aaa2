"""The alert rules: promtool accepts them, and each alert has its texts and is tested firing and silent."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config import packs
from exporter.core.model import UNRECOGNISED
from exporter.metrics.counters import METRICS
from tests.support.programs import needs

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus/rules.yml"
TESTS = sorted((DEPLOY / "prometheus/tests").glob("*.yaml"))
GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALL = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in ALL if "alert" in rule}

needs_promtool = needs("promtool")


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output."""
    done = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@needs_promtool
def test_prometheus_accepts_the_rules() -> None:
    code, output = promtool("check", "rules", RULES)
    assert code == 0, output


@pytest.mark.heavy
@pytest.mark.deploy
@needs_promtool
@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_only_when_they_should(test: Path) -> None:
    code, output = promtool("test", "rules", test)
    assert code == 0, output


def test_every_alert_is_tested_firing_and_silent() -> None:
    fires, is_silent = set(), set()
    for path in TESTS:
        for case in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            for asked in case.get("alert_rule_test", ()):
                (fires if asked.get("exp_alerts") else is_silent).add(asked["alertname"])
    assert fires == set(ALERTS)
    assert is_silent == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_severity_texts_and_links(name: str) -> None:
    rule = ALERTS[name]
    texts = rule["annotations"]
    assert re.fullmatch(r"Gpufault[A-Z][A-Za-z]+", name)
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert texts.keys() - {"fleet_url"} == {"summary", "description", "runbook_url", "dashboard_url"}
    assert texts.get("fleet_url", "https://fleet.example.org/").startswith("https://fleet.example.org/")
    assert texts["summary"].endswith(".")
    assert "{{" not in texts["summary"]  # one sentence for all nodes, as lists of a pager show it
    assert texts["runbook_url"] == f"https://gpufault.example.org/runbooks/{name}.md"
    assert re.match(r"https://grafana\.example\.org/d/gpufault-[a-z-]+(\?|$)", texts["dashboard_url"])


def test_only_urgent_alerts_page() -> None:
    pages = {name for name, rule in ALERTS.items() if rule["labels"]["severity"] == "critical"}
    assert pages == {
        "GpufaultCrashSpike", "GpufaultCrashSpikeOfAllCauses", "GpufaultPlaceSpike", "GpufaultFatalSignature",
        "GpufaultFatalNodes", "GpufaultAbsent",
    }  # fmt: skip


def test_metrics_in_the_rules_exist() -> None:
    exported = {*METRICS, *fleet_metrics()}
    asked = {name for rule in ALL for name in re.findall(r"\bgpufault_[a-z0-9_]+\b(?!:)", rule["expr"])}
    recorded = {part for rule in ALL if "record" in rule for part in rule["record"].split(":")}
    of_alternatives = {"gpufault_"}  # a regular expression over names is looked at in the unit tests
    assert asked - exported - recorded - of_alternatives == set()


def test_unexplained_consequences_and_unrecognised_crashes_have_their_own_kind() -> None:
    (listed,) = re.findall(r'"what", "unknown \(\?:([^)]+)\)"', RULES.read_text(encoding="utf-8"))
    signatures = packs.load().signatures.values()
    consequences = [s.id for s in signatures if s.role == "cascade" and "job" in s.sources]
    assert listed.split("|") == sorted([*consequences, UNRECOGNISED])


def test_every_recorded_series_is_used() -> None:
    asked = "\n".join(rule["expr"] for rule in ALL)
    dashboards = "\n".join(path.read_text(encoding="utf-8") for path in (DEPLOY / "grafana").glob("*.json"))
    assert [r["record"] for r in ALL if "record" in r and r["record"] not in asked + dashboards] == []


def test_another_group_reads_a_record_of_five_minutes_only_over_a_range() -> None:
    """Prometheus looks back five minutes, so at some moments of each period an instant has no value."""
    instants = [
        (group["name"], rule["record"])
        for slow in GROUPS
        if slow["interval"] != "1m"
        for rule in slow["rules"]
        if "record" in rule
        for group in GROUPS
        if group is not slow
        for other in group["rules"]
        if re.search(rf"{re.escape(rule['record'])}\b(\{{[^}}]*\}})?(?![\w{{\[])", other["expr"])
    ]
    assert instants == []


def fleet_metrics() -> set[str]:
    telemetry = pytest.importorskip("exporter.fleet.service.fleet_metrics", reason="needs the service of the fleet")
    return set(telemetry.METRICS)
