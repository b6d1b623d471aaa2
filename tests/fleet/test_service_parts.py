"""The fleet service's flags and file, its labels, and its page with hostile texts, without a process."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest

from exporter.cli.main import main
from exporter.config.fleet import LostConfig, load
from exporter.fleet.observations import Gap, Window
from exporter.fleet.pull.status import PullCounts
from exporter.fleet.results.labels import ratio, sure
from exporter.fleet.review.lost_hours import LostHours
from exporter.fleet.service.fleet_metrics import METRICS, bounded, snapshot_of
from exporter.fleet.service.refresh import FleetStatus, arguments
from exporter.fleet.statistics.findings import (
    Correlation,
    Detectable,
    FactValue,
    Finding,
    NodesAtRisk,
    NotEnough,
    OutlierNode,
    Reliability,
    Rollout,
    RolloutEffect,
)
from exporter.fleet.statistics.ratio import Ratio
from exporter.metrics.exposition import Exposition

FINDING = Finding(
    signature="crash", direction="more", family="configuration", facts=(FactValue(fact="os", value="<b>1</b>"),),
    together_with=FactValue(fact="a", value="2"), observed=7, expected=1.5, crashes=9, nodes_with=1, nodes_without=2,
    ratio=Ratio(value=inf, low=3.0, high=inf), p_value=0.001, q_value=0.01, status="candidate", score=2.0,
    counter_evidence=("\x1b[31m",), examples=("<b>", "2-4f"), tie_breakers=(),
)  # fmt: skip
RESULT = Correlation(
    window=Window(start=1780272000.0, end=1780876800.0), exposure="observed_hours", exposure_hours=10.0,
    nodes=3, incidents=9, origins=8, tests=1, complete=False, findings=(FINDING,), locations=(), rollouts=(), beginnings=(),
    gaps=(Gap(kind="bad_lines", count=2, message="two"), Gap(kind="bad_lines", count=1, message="one")),
    not_enough_data=(
        NotEnough(signature="other_crash", crashes=1, needed=9, lead=None, observed=0, expected=0.0, p_value=None, values=0,
                  message="would need 9"),
        NotEnough(signature="more_often", crashes=4, needed=8, lead=FactValue(fact="os", value="2"), observed=3, expected=1.04,
                  p_value=0.2, values=5, message="would need 8"),
    ),
    detectable=Detectable(crashes=9, p_value=0.01, ratios=()),
    outlier_nodes=(
        OutlierNode(kind="node", name="n1", node="n1", incidents=5, expected=0.1, probability=0.99, jobs=3, days=3,
                    signatures=("crash",)),
    ),
    exposed=(
        NodesAtRisk(because="os=1", signature="crash", status="candidate", count=1, expected_7d=2.0, nodes=("n2",)),
    ),
    reliability=(
        Reliability(gpu_model="MI300X", hours=2000.0, incidents=2, mtbf=1000.0, mtbf_low=277.2, mtbf_high=inf),
        Reliability(gpu_model="H200", hours=40.0, incidents=0, mtbf=inf, mtbf_low=13.0, mtbf_high=inf),
    ),
)  # fmt: skip
NO_STATES = np.zeros(0, dtype=bool)
EFFECT = RolloutEffect(
    rollout=Rollout(
        facts=(FactValue(fact="driver", value="2"),), before="1", nodes=5, controls=9, first=RESULT.window.start,
        last=RESULT.window.end, crashed_before=0.0, crashed_before_expected=0.0, verdict="",
    ),
    signature=0, observed=9, expected=1.0, crashes=10, crashes_before=1, p_value=0.0, q_value=0.0, ratio=FINDING.ratio,
    ratio_before=FINDING.ratio, onset=0.0, onset_low=0.0, onset_high=1.0, column=NO_STATES, use=NO_STATES,
)  # fmt: skip
SHOWN = FleetStatus(result=RESULT, result_time=100.0, refreshes=2, failures={"source": 1}, web_config_ok=True)


def exposed_by(fleet_status: FleetStatus, most: int = 100) -> str:
    snapshot = snapshot_of(130.0, fleet_status, label_values=most, build=("1", "3"))
    return Exposition(lambda: snapshot).render(None, None).body.decode()


def test_numbers_without_bound_and_pairs_of_facts_are_series_too() -> None:
    text = exposed_by(SHOWN)
    labels = 'fact="os and a",signature="crash",status="candidate",value="<b>1</b> and 2"'

    assert f"gpufault_fleet_finding_rate_ratio{{{labels}}} +Inf" in text
    assert f"gpufault_fleet_finding_rate_ratio_low{{{labels}}} 3.0" in text
    assert 'gpufault_fleet_gaps{kind="bad_lines"} 3.0' in text
    assert "gpufault_fleet_result_age_seconds 30.0" in text
    assert "gpufault_fleet_complete 0.0" in text
    assert "complete_result_age" not in text
    assert 'gpufault_fleet_exposed_nodes{because="os=1",signature="crash",status="candidate"} 1.0' in text


def test_before_the_first_result_only_what_is_known_is_shown() -> None:
    names = {family.name for family in snapshot_of(1.0, FleetStatus(), label_values=9, build=("1", "3")).families}

    assert "gpufault_fleet_findings" not in names  # 0 would be an all-clear
    assert "gpufault_fleet_complete" not in names
    assert "gpufault_fleet_refresh_failures_total" in names


def test_every_metric_is_shown_by_some_standing() -> None:
    lost = LostHours(measured=1.0, assumed=0.0, config=LostConfig())
    fleet_status = FleetStatus(result=RESULT, lost=lost, refreshes=1, complete_time=1.0, web_config_ok=True)
    names = {
        family.name
        for family in snapshot_of(2.0, fleet_status, label_values=9, build=("1", "3"), pull=PullCounts()).families
    }

    assert names == set(METRICS)


def test_what_is_beyond_the_bound_shares_one_series_with_the_largest_value() -> None:
    rows = [(("s", f"v{i}"), float(i)) for i in (3, 1, 2, 5, 4)]

    assert bounded(rows, 3) == {("s", "v3"): 3.0, ("s", "v1"): 1.0, ("s", "v2"): 2.0, ("other", "other"): 5.0}


def test_a_value_too_long_for_a_label_is_other_and_the_stronger_of_two_such_counts() -> None:
    assert bounded([(("s", "x" * 200), 3.0), (("s", "y" * 200), 2.0)], 9) == {("s", "other"): 3.0}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (0.123, "0.12"),
        (9.04, "9"),
        (9.97, "10"),
        (20.3, "20"),
        (128.4, "128"),
        (1e6, "1,000,000"),
        (None, "∞"),
    ],
)
def test_a_ratio_is_written_as_people_write_it(value: float | None, told: str) -> None:
    assert ratio(value) == told


@pytest.mark.parametrize(("probability", "told"), [(0.904, "90% sure"), (0.99, "99% sure"), (0.9999, "over 99% sure")])
def test_nothing_is_more_than_sure(probability: float, told: str) -> None:
    assert sure(probability) == told


def test_a_refresh_is_asked_for_all_that_the_file_says(tmp_path: Path) -> None:
    config = load(
        "prometheus: {url: 'https://p:9090', node_label: node, tenant: t, ca_file: /ca}\nwindow: 2d\n"
        f"signatures: {{dirs: [{tmp_path}, {tmp_path}/none-yet]}}\n",
        "fleet.yaml",
    )
    asked = arguments(config, tmp_path / "f.json", tmp_path / "out.json")

    assert asked == [
        "--prometheus=https://p:9090", "--format=pickle", f"--output={tmp_path}/out.json", "--window=172800s",
        f"--findings.file={tmp_path}/f.json", f"--signatures.dir={tmp_path}", "--lost.assumed-hours=1.0",
        "--lost.currency=", "--prometheus.node-label=node", "--prometheus.tenant=t", "--prometheus.ca-file=/ca",
    ]  # fmt: skip


def test_flags_go_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text(json.dumps({"prometheus": {"url": "https://p:9090"}}))

    assert main(["fleet", "--config.check", "--config.file", str(config)]) == 0
    assert "https://p:9090" in capsys.readouterr().out
    assert main(["fleet", "--config.check", "--config.file", str(config), "--journal", "/j"]) == 0
    said = capsys.readouterr()
    assert "journals below /j" in said.out
    assert said.err == "note: /j does not exist here; until it does, there is nothing to read\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "--journal DIR or --prometheus URL"),
        (["--prometheus", "p:9090"], 2, "http://"),
        (["--journal", "/j", "--window", "soon"], 2, "7d"),
        (["--journal", "/j", "--refresh.interval", "1"], 2, "--refresh.interval"),
        (["--config.file", "/nowhere/fleet.yaml"], 3, "/nowhere/fleet.yaml"),
        (["--journal", "/j", "--web.listen-address", "nonsense"], 2, "HOST:PORT"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", *arguments]) == code
    assert told in capsys.readouterr().err


def test_a_file_that_names_two_sources_is_refused_at_the_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text("journal: /j\nprometheus: {url: 'https://p'}\n")

    assert main(["fleet", "--config.check", "--config.file", str(config)]) == 2
    assert f"{config}:2:1: prometheus: journal and prometheus both say what to read" in capsys.readouterr().err
