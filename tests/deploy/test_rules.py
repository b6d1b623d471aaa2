"""The rules that deploy/ ships: what promtool says of them, what each alert tells, and that each is tested both ways."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.metrics.counters import METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus/rules.yml"
TESTS = sorted((DEPLOY / "prometheus/tests").glob("*.yaml"))
GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALL = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in ALL if "alert" in rule}

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (apt install prometheus)")


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Exit code, and all that was said."""
    done = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@needs_promtool
def test_prometheus_understands_the_rules() -> None:
    code, said = promtool("check", "rules", RULES)
    assert code == 0, said


@pytest.mark.heavy
@pytest.mark.deploy
@needs_promtool
@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem)
def test_the_alerts_fire_when_they_should_and_at_no_other_time(test: Path) -> None:
    code, said = promtool("test", "rules", test)
    assert code == 0, said


def test_every_alert_is_shown_to_fire_and_not_to_fire() -> None:
    fires, is_silent = set(), set()
    for path in TESTS:
        for case in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            for asked in case.get("alert_rule_test", ()):
                (fires if asked.get("exp_alerts") else is_silent).add(asked["alertname"])
    assert fires == set(ALERTS)
    assert is_silent == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_is_wrong_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    told = rule["annotations"]
    assert re.fullmatch(r"Gpufault[A-Z][A-Za-z]+", name)
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert told.keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert told["summary"].endswith(".")
    assert "{{" not in told["summary"]  # one sentence, whichever node it is: what a pager's list is read by
    assert told["runbook_url"] == f"https://gpufault.example.org/runbooks/{name}.md"
    assert re.match(r"https://grafana\.example\.org/d/gpufault-[a-z-]+(\?|$)", told["dashboard_url"])


def test_only_what_cannot_wait_until_morning_pages() -> None:
    pages = {name for name, rule in ALERTS.items() if rule["labels"]["severity"] == "critical"}
    assert pages == {"GpufaultCrashSpike", "GpufaultFatalSignature", "GpufaultAbsent"}


def test_the_rules_ask_for_metrics_that_there_are() -> None:
    exported = {*METRICS, *fleet_metrics()}
    asked = {name for rule in ALL for name in re.findall(r"\bgpufault_[a-z0-9_]+\b(?!:)", rule["expr"])}
    recorded = {part for rule in ALL if "record" in rule for part in rule["record"].split(":")}
    of_alternatives = {"gpufault_"}  # a regular expression over names is looked at in the unit tests
    assert asked - exported - recorded - of_alternatives == set()


def test_every_recorded_series_is_asked_for() -> None:
    asked = "\n".join(rule["expr"] for rule in ALL)
    dashboards = "\n".join(path.read_text(encoding="utf-8") for path in (DEPLOY / "grafana").glob("*.json"))
    assert [r["record"] for r in ALL if "record" in r and r["record"] not in asked + dashboards] == []


def fleet_metrics() -> set[str]:
    telemetry = pytest.importorskip("exporter.fleet.service.metrics", reason="needs the service of the fleet")
    return set(telemetry.METRICS)
