"""The dashboards keep the rules of Grafana's dashboard-linter, written down here again since it cannot be had from a
registry; and they lead to runbooks and to each other. tests/deploy/test_dashboard_queries.py runs their queries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/grafana"
Json = dict[str, Any]
DASHBOARDS: dict[str, Json] = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in sorted(FOLDER.glob("*.json"))}
PANELS: list[tuple[Json, Json]] = [(d, p) for d in DASHBOARDS.values() for p in d["panels"] if p["type"] != "row"]
TARGETS: list[tuple[Json, Json, Json]] = [(d, p, t) for d, p in PANELS for t in p["targets"]]
EXCLUSIONS: Json = yaml.safe_load((FOLDER / ".lint").read_text(encoding="utf-8"))["exclusions"]

# Grafana's ids of units, those that fit what is measured here.
UNITS = {"celsius", "short", "none", "percentunit", "bytes", "Bps", "s", "cps", "dateTimeFromNow", "dateTimeAsIso"}
NOT_METRICS = {"by", "on", "and", "or", "unless", "without", "group_left", "group_right", "bool", "offset", "ignoring"}


def selectors(expression: str) -> list[tuple[str, str]]:
    """Each metric that an expression asks for, and the text of its matchers."""
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", expression)
    bare = re.sub(r"\[[^\]]*\]|\boffset [\w$]+", " ", bare)
    found = re.findall(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\}|\()?", re.sub(r"\{[^}]*\}", matchers_only, bare))
    return [(name, rest) for name, rest in found if rest != "(" and name not in NOT_METRICS]


def matchers_only(found: re.Match[str]) -> str:
    """Matchers with nothing in them that looks like a metric."""
    return "{" + re.sub(r"[^!=~\"$,a-z_]", "", found[0]) + "}"


def variables(dashboard: Json) -> dict[str, Json]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


Rule = Callable[[Json, Json, Json], bool]


def has(matcher: str) -> Rule:
    return lambda _dashboard, _panel, target: all(matcher in rest for _, rest in selectors(target["expr"]))


def rates_over_the_rate_interval(_dashboard: Json, _panel: Json, target: Json) -> bool:
    ranges = re.findall(r"\b(?:rate|irate|increase)\([^\[]*\[([^\]]+)\]", target["expr"])
    return set(ranges) <= {"$__rate_interval"}


def counters_in_rates(_dashboard: Json, _panel: Json, target: Json) -> bool:
    rated = re.sub(r"\b(?:rate|irate|increase)\([a-z_]+_total\{[^}]*\}\[", "", target["expr"])
    return "_total" not in rated


RULES: dict[str, Rule] = {
    "target-job-rule": has('job=~"$job"'),
    "target-instance-rule": has('instance=~"$instance"'),
    "target-rate-interval-rule": rates_over_the_rate_interval,
    "target-counter-agg-rule": counters_in_rates,
}


def offenders(rule: str) -> set[tuple[str, str]]:
    return {(d["title"], p["title"]) for d, p, target in TARGETS if not RULES[rule](d, p, target)}


def excused(rule: str) -> set[tuple[str, str]]:
    return {(entry["dashboard"], entry["panel"]) for entry in EXCLUSIONS.get(rule, {}).get("entries", ())}


@pytest.mark.parametrize("rule", RULES)
def test_every_query_follows_the_rule_or_has_an_exception(rule: str) -> None:
    assert offenders(rule) == excused(rule)
    assert rule not in EXCLUSIONS or EXCLUSIONS[rule]["reason"]


def test_the_dashboard_rules_detect_violations() -> None:
    bad = (
        'sum by (job) (increase(a_total{instance=~"$instance"}[5m])) / on (job) b_total unless c{job="$job"} offset 1h'
    )
    assert [name for name, _ in selectors(bad)] == ["a_total", "b_total", "c"]
    assert not any(rule({}, {}, {"expr": bad}) for rule in RULES.values())
    good = 'topk(3, rate(a_total{job=~"$job",instance=~"$instance"}[$__rate_interval]))'
    assert all(rule({}, {}, {"expr": good}) for rule in RULES.values())


def test_the_four_dashboards_have_permanent_ids() -> None:
    assert {d["uid"] for d in DASHBOARDS.values()} == {f"gpufault-{name}" for name in DASHBOARDS}
    assert sorted(DASHBOARDS) == ["agents", "fleet", "node", "root-cause"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_read_only_and_uses_the_chosen_datasource(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["editable"] is False
    (datasource,) = (v for v in variables(dashboard).values() if v["type"] == "datasource")
    assert (datasource["name"], datasource["label"], datasource["query"]) == ("datasource", "Data source", "prometheus")
    asking = [v for v in variables(dashboard).values() if v["type"] == "query"]
    asking += [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    asking += [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert {item["datasource"]["uid"] for item in asking} == {"${datasource}"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_variables_depend_on_each_other_and_on_the_time_range(name: str) -> None:
    asked = variables(DASHBOARDS[name])
    assert {"cluster", "job", "instance"} <= asked.keys()
    for variable, label in (("job", "Job"), ("instance", "Instance")):
        assert (asked[variable]["label"], asked[variable]["multi"]) == (label, True)
        assert (asked[variable]["includeAll"], asked[variable]["allValue"]) == (True, ".+")
    for query in (v for v in asked.values() if v["type"] == "query"):
        assert query["refresh"] == 2
        assert re.fullmatch(r"label_values\(\w+(\{.*\})?, \w+\)", query["definition"])
        assert query["definition"] == query["query"]["query"]


@pytest.mark.parametrize(("dashboard", "panel"), PANELS, ids=lambda value: value["title"])
def test_a_panel_has_a_title_description_and_unit(dashboard: Json, panel: Json) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["datasource"]["uid"] == "${datasource}"
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARDS[name]["panels"]:
        place = panel["gridPos"]
        cells = {(x + place["x"], y + place["y"]) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARDS[name]["panels"]]
    assert len(ids) == len(set(ids))


def links() -> Iterator[str]:
    for _, panel in PANELS:
        yield from (link["url"] for link in panel["links"])
        for override in panel["fieldConfig"]["overrides"]:
            yield from (link["url"] for one in override["properties"] for link in one["value"])


def test_links_to_runbooks_and_dashboards_resolve() -> None:
    runbooks = {url.rpartition("/")[2] for url in links() if url.startswith("https://gpufault.example.org/runbooks/")}
    assert runbooks == {path.name for path in (ROOT / "docs/runbooks").glob("Gpufault*.md")}
    others = {url.partition("?")[0].removeprefix("/d/") for url in links() if url.startswith("/d/")}
    assert others == {"gpufault-node", "gpufault-root-cause"}
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    linked = set(re.findall(r"https://grafana\.example\.org/d/([a-z-]+)", rules))
    assert linked <= {d["uid"] for d in DASHBOARDS.values()}
    for url in re.findall(r"https://grafana\.example\.org/d/(\S+?)\"", rules):
        uid, _, query = url.partition("?")
        asked = variables(DASHBOARDS[uid.removeprefix("gpufault-")])
        assert set(re.findall(r"var-(\w+)=", query)) <= asked.keys()
