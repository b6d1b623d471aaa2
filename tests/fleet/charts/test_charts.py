"""Charts: well-formed, accessible, and harmless whatever stands in a name."""

import re
from collections.abc import Callable
from math import inf
from xml.etree import ElementTree

import pytest

from exporter.fleet.charts.heat_map import NodeGroup, heat_map
from exporter.fleet.charts.intervals import Interval, event_study, forest
from exporter.fleet.charts.over_time import Lane, Mark, TimelineEvent, small_bar, sparkline, stacked_bars, timeline
from exporter.fleet.charts.svg import decades, number, ticks, time_ticks
from exporter.fleet.statistics.ratio import Ratio

DAY = 86400.0
HOSTILE = "<script>alert(1)</script>\"' onload=x \u202e\n\x00" + "x" * 10_000
SVG = "{http://www.w3.org/2000/svg}"


def intervals(name: str, *ratios: Ratio) -> list[Interval]:
    return [Interval(name=name, ratio=ratio) for ratio in ratios]


DRAWN: dict[str, Callable[[str, float], str]] = {
    "stacked bars": lambda name, width: stacked_bars(
        name, [0.0, DAY, 2 * DAY], [("workload", [1, 2]), (name, [0, 4])], unit=name, width=width,
        marks=[Mark(time=DAY, what=name)],
    ),
    "sparkline": lambda name, _width: sparkline(name, [None, 1, 2], verdict=name),
    "forest": lambda name, width: forest(
        name, intervals(name, Ratio(value=6.2, low=4.1, high=9.5), Ratio(value=inf, low=3.0, high=inf)), width=width,
    ),
    "event study": lambda name, width: event_study(
        name, intervals(name, Ratio(value=1.0, low=0.6, high=inf), Ratio(value=6.0, low=4.0, high=8.0)),
        changed_at=1, width=width,
    ),
    "heat map": lambda name, width: heat_map(name, [NodeGroup(name=name, cells=((name, 3), ("b", 0)))], unit=name, width=width),
    "timeline": lambda name, width: timeline(
        name,
        [Lane(name=name, events=(TimelineEvent(time=1.0, what=name), TimelineEvent(time=5.0, end=9.0, what=name)))],
        0.0, 10.0, width=width,
    ),
}  # fmt: skip


@pytest.mark.parametrize("width", [340.0, 1080.0])
@pytest.mark.parametrize("kind", DRAWN)
def test_a_hostile_name_stays_text(kind: str, width: float) -> None:
    svg = DRAWN[kind](HOSTILE, width)
    root = ElementTree.fromstring(svg)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "text", "rect", "line", "circle", "polyline", "path", "g"}
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on") or name == "style" or "href" in name}
    classes = {each for element in root.iter() for each in element.get("class", "").split()}
    assert all(re.fullmatch(r"[a-z-]+", each) and len(each) < 20 for each in classes)
    assert "\u202e" not in svg
    drawn = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert all(len(text) < 220 for text in drawn)


@pytest.mark.parametrize("kind", DRAWN)
def test_a_chart_has_a_title_and_a_description(kind: str) -> None:
    root = ElementTree.fromstring(DRAWN[kind]("Crashes", 720.0))
    assert root.get("role") == "img"
    assert [root[0].tag, root[0].text] == [f"{SVG}title", "Crashes"]
    assert root[1].tag == f"{SVG}desc"
    assert root[1].text


@pytest.mark.parametrize(
    "svg",
    [
        stacked_bars("Nothing", [0.0, DAY], [("workload", [0])], unit="crashes"),
        sparkline("Nothing", [None, None]),
        forest("Nothing", []),
        event_study("Nothing", [], changed_at=0),
        heat_map("Nothing", [NodeGroup(name="r1", cells=())], unit="crashes"),
        timeline("Nothing", [Lane(name="jobs", events=())], 0.0, 1.0),
    ],
)
def test_no_data_is_said_and_not_drawn(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    assert [text.text for text in root.iter(f"{SVG}text")] != []
    assert not list(root.iter(f"{SVG}rect"))


def test_stacked_bars_stand_on_each_other() -> None:
    svg = stacked_bars("Crashes", [0.0, DAY], [("infrastructure", [3]), ("workload", [1])], unit="crashes")
    lower, upper = (
        {name: rect.attrib[name] for name in ("y", "height")} for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect")
    )
    assert float(upper["y"]) + float(upper["height"]) == pytest.approx(float(lower["y"]), abs=0.2)
    assert float(lower["height"]) == pytest.approx(3 * float(upper["height"]), abs=0.3)


def test_a_ratio_of_ten_is_one_decade_from_a_ratio_of_one() -> None:
    found = [Interval(name=str(v), ratio=Ratio(value=v, low=v / 2, high=v * 2)) for v in (1.0, 10.0, 100.0)]
    x = [float(dot.attrib["cx"]) for dot in ElementTree.fromstring(forest("Ratios", found)).iter(f"{SVG}circle")]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)


def test_an_interval_without_bound_ends_in_an_arrow() -> None:
    svg = forest("Ratios", [Interval(name="a", ratio=Ratio(value=inf, low=3.0, high=inf))])
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}path"))) == 1
    assert [text.text for text in root.iter(f"{SVG}text")][-1] == "∞×"


def test_a_bar_in_a_cell_is_hidden_from_screen_readers() -> None:
    assert ElementTree.fromstring(small_bar(3.0, 4.0, "workload")).get("aria-hidden") == "true"


@pytest.mark.parametrize("largest", [0.0, 0.3, 1.0, 3.0, 7.0, 43.0, 999.0, 1e6])
def test_ticks_are_round_and_reach_the_largest_value(largest: float) -> None:
    found = ticks(largest)
    assert found[0] == 0
    assert found[-1] >= largest
    assert len(found) <= 6
    assert all(len(number(tick)) <= 9 for tick in found)


def test_decades_and_days_cover_their_span() -> None:
    assert decades(0.05, 30.0) == [0.01, 0.1, 1.0, 10.0, 100.0]
    assert (
        time_ticks(0.5 * DAY, 3.5 * DAY, 8) == [DAY, 2 * DAY, 3 * DAY] or len(time_ticks(0.5 * DAY, 3.5 * DAY, 8)) <= 8
    )


def test_a_span_has_the_colour_of_its_verdict() -> None:
    events = (
        TimelineEvent(time=1.0, what="a", end=2.0, verdict="infrastructure"),
        TimelineEvent(time=5.0, end=9.0, what="b"),
    )
    svg = timeline("x", [Lane(name="node check", events=events)], 0.0, 10.0)
    assert [each.get("class") for each in ElementTree.fromstring(svg).iter(f"{SVG}rect")] == [
        "span infrastructure",
        "span unclear",
    ]
