"""The model of pages evaluates the alerts that page, and what they read, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("page_rules", ROOT / "benchmarks/page_rules.py")
assert spec
assert spec.loader
page_rules = importlib.util.module_from_spec(spec)
spec.loader.exec_module(page_rules)

RULES = """
groups:
  - name: gpufault-incidents
    rules:
      - {record: "a:nodes:count", expr: "count(b:seen:one)"}
      - {record: "b:seen:one", expr: "up == 1"}
      - {record: "c:crashes:sum", expr: "sum(d:crashes:one)"}
      - {record: "d:crashes:one", expr: "crashes"}
      - {record: "e:days:sum", expr: "sum_over_time(d:crashes:one[1d])"}
  - name: gpufault-crashes
    rules:
      - {alert: Page, expr: "c:crashes:sum > a:nodes:count", labels: {severity: critical}, annotations: {summary: Crashes.}}
      - {alert: Ticket, expr: "e:days:sum > 1", labels: {severity: warning}}
  - name: gpufault-agents
    rules:
      - {alert: Absent, expr: "absent(up)", labels: {severity: critical}}
"""


def test_only_what_pages_read_is_kept_and_a_given_record_is_not_made() -> None:
    kept = page_rules.paging(RULES, ["a:nodes:count"])
    names = [[rule.get("record") or rule["alert"] for rule in group["rules"]] for group in kept["groups"]]
    assert names == [["c:crashes:sum", "d:crashes:one"], ["Page"]]


def test_all_records_and_alerts_of_a_page_are_found_in_the_shipped_rules() -> None:
    text = (ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    rules = [rule for group in page_rules.paging(text, [])["groups"] for rule in group["rules"]]
    made = {rule.get("record") for rule in rules}
    assert {name for rule in rules for name in page_rules.RECORD.findall(rule["expr"])} <= made
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    assert alerts == {
        rule["alert"]
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if rule.get("labels", {}).get("severity") == "critical" and rule["alert"] != "GpufaultAbsent"
    }
