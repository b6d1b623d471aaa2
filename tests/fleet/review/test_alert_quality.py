"""Which alerts had a crash behind them."""

from pathlib import Path

import pytest

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.input.prometheus_alerts import Firing
from exporter.fleet.review.alert_quality import GRACE, HOUR, REACH, alert_quality
from exporter.fleet.review.review_contents import AlertQuality
from tests.fleet.review.fleets import DAY, START, crash, history, journal, watched

SPIKE = "GpufaultCrashSpike"


def fired(hours: float, name: str = SPIKE, severity: str = "critical", lasts: float = 1.0, **labels: str) -> Firing:
    """An alert that fires so many hours after day 22."""
    start = START + 22 * DAY + hours * HOUR
    return Firing(name=name, severity=severity, labels=labels, start=start, end=start + lasts * HOUR)


def quality(folder: Path, *firings: Firing, records: tuple[dict[str, object], ...] = ()) -> AlertQuality:
    """Of a fleet with one crash of one cause, on day 22."""
    one = crash("n1.example", 22, "xid", root_cause="nvlink")
    return alert_quality(history(journal(folder, [*watched(["n1.example", "n2"]), one, *records])), firings)


@pytest.mark.parametrize(
    ("firing", "justified"),
    [
        (fired(0.5, root_cause="nvlink"), True),
        (fired(-0.5, root_cause="nvlink"), True),  # the clock of the node is behind
        (fired(0.5, root_cause="any"), True),
        (fired(0.5, root_cause="other"), False),
        (fired(2, root_cause="nvlink"), False),
        (fired(-2, root_cause="nvlink"), False),
        (fired(2, "GpufaultCrashRateHigh", root_cause="nvlink"), True),
        (fired(0.5, "GpufaultCrashSpikeOfAllCauses"), True),
        (fired(0.5, "GpufaultFatalSignature", signature="xid"), True),
        (fired(0.5, "GpufaultFatalSignature", signature="hang"), False),
        (fired(0.5, "GpufaultNodeStorm", instance="n1:9873"), True),
        (fired(0.5, "GpufaultNodeStorm", instance="n1.example"), True),
        (fired(0.5, "GpufaultNodeStorm", instance="n2:9873"), False),
        (fired(0.5, "GpufaultNodeStorm", instance="10.0.0.7:9873", node="n1"), True),
        (fired(0.5, "GpufaultNodeStorm", instance="10.0.0.7:9873"), None),  # whose address is that?
        (fired(0.5, "GpufaultPlaceSpike", place="rack", value="r1"), True),
        (fired(0.5, "GpufaultPlaceSpike", place="rack", value="r2"), False),
        (fired(0.5, "GpufaultPlaceSpike", place="row", value="r1"), None),  # no fact: the target's label
        (fired(0.5, "GpufaultAbsent"), None),
        (fired(0.5, "OurOwn", root_cause="nvlink"), None),
    ],
)
def test_an_alert_is_justified_by_a_crash_that_its_labels_name(
    firing: Firing, justified: bool | None, tmp_path: Path
) -> None:
    racks = tuple(
        {"kind": "facts", "time": rfc3339(START + DAY), "node": node, "facts": {"rack": rack}}
        for node, rack in (("n1.example", "r1"), ("n2", "r2"))
    )
    [row] = quality(tmp_path, firing, records=racks).rows
    assert (row.justified, row.not_justified, row.not_judged) == (
        int(justified is True),
        int(justified is False),
        int(justified is None),
    )


def test_consequences_justify_nothing(tmp_path: Path) -> None:
    found = quality(
        tmp_path,
        fired(0.5, root_cause="peer_failure"),
        records=(crash("n2", 22, "nccl", root_cause="peer_failure", role="cascade"),),
    )
    assert (found.pages_justified, found.pages_not_justified) == (0, 1)


def test_pages_come_first_with_medians_of_what_began_in_the_window(tmp_path: Path) -> None:
    before = Firing(name=SPIKE, severity="critical", labels={}, start=START, end=START + 30 * DAY, began_before=True)
    firings = [
        fired(0.1, root_cause="nvlink", lasts=1), fired(0.3, root_cause="nvlink", lasts=3), fired(0.3, root_cause="x", lasts=5),
        *(fired(hour, "GpufaultSourceDown", "warning") for hour in range(4)),
        fired(0, "GpufaultNodesExposed", "info"), before,
    ]  # fmt: skip
    found = quality(tmp_path, *firings)
    assert (found.pages, found.tickets, found.notes, found.pages_justified, found.pages_not_justified) == (
        3,
        4,
        1,
        2,
        1,
    )
    assert found.seconds_to_page == pytest.approx(0.2 * HOUR)
    assert [(row.kind, row.name, row.fired, row.from_before) for row in found.rows] == [
        ("page", SPIKE, 3, 1),
        ("ticket", "GpufaultSourceDown", 4, 0),
        ("note", "GpufaultNodesExposed", 1, 0),
    ]
    assert (found.rows[0].median_seconds, found.rows[0].firing_seconds) == (3 * HOUR, 9 * HOUR)
    assert found.rows[0].seconds_from_crash == pytest.approx(0.2 * HOUR)
    assert found.rows[1].seconds_from_crash is None


def test_a_crash_counts_as_far_back_as_the_rule_looks(tmp_path: Path) -> None:
    hours = (REACH[SPIKE] + GRACE) / HOUR
    found = quality(tmp_path, fired(hours - 0.01, root_cause="nvlink"), fired(hours + 0.01, root_cause="nvlink"))
    assert (found.pages_justified, found.pages_not_justified) == (1, 1)


def test_each_alert_that_is_judged_is_one_of_the_rules() -> None:
    rules = (Path(__file__).parents[3] / "deploy" / "prometheus" / "rules.yml").read_text()
    assert {name for name in REACH if f"- alert: {name}\n" not in rules} == set()
