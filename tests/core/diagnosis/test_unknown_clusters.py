"""Clusters of crashes without a signature."""

from __future__ import annotations

import random
from typing import Any

from exporter.core.diagnosis.unknown_clusters import MAX_CLUSTERS, MAX_NAMES, NEW_SECONDS, UnknownClusters

DAY = 86_400.0


def record(template: str, node: str = "n1", **more: Any) -> dict[str, Any]:
    captures = {"kind": "python", "type": "KeyError", "template": template}
    return {"node": node, "captures": captures, "text": f"{template} 7", "path": "/job.log", "line": 3, **more}


def test_like_crashes_are_one_cluster_whatever_their_order() -> None:
    records = [(record("a", f"n{n % 3}", line=n, job={"id": str(n % 4)}), 100.0 + n) for n in range(1, 9)]
    random.Random(1).shuffle(records)
    clusters = UnknownClusters()
    for each, at in records:
        clusters.add(each, at)
    (one,) = clusters.clusters()
    assert (one.count, sorted(one.nodes), sorted(one.jobs)) == (8, ["n0", "n1", "n2"], ["0", "1", "2", "3"])
    assert (one.first, one.last, one.line) == (101.0, 108.0, 1)


def test_the_first_cluster_is_that_on_most_nodes() -> None:
    clusters = UnknownClusters()
    for _ in range(5):
        clusters.add(record("often"), 1.0)
    for node in ("n1", "n2"):
        clusters.add(record("wide", node), 1.0)
    assert [each.template for each in clusters.clusters()] == ["wide", "often"]


def test_what_began_on_the_last_day_is_new_unless_nothing_is_older() -> None:
    clusters = UnknownClusters()
    clusters.add(record("young"), 9 * DAY)
    assert not clusters.is_new(clusters.clusters()[0])
    clusters.add(record("old"), 2 * DAY)
    clusters.add(record("old"), 9 * DAY + NEW_SECONDS / 2)
    assert {each.template: clusters.is_new(each) for each in clusters.clusters()} == {"young": True, "old": False}


def test_memory_is_bounded_and_what_found_no_room_is_counted() -> None:
    clusters = UnknownClusters()
    for number in range(MAX_CLUSTERS + 500):
        clusters.add(record(f"template {number}"), float(number))
    for number in range(MAX_NAMES + 500):
        clusters.add(record("template 0", f"n{number}", job={"id": str(number)}), 1.0)
    assert (len(clusters.clusters()), clusters.unclustered) == (MAX_CLUSTERS, 500)
    widest = clusters.clusters()[0]
    assert (widest.count, len(widest.nodes), len(widest.jobs)) == (MAX_NAMES + 501, MAX_NAMES, MAX_NAMES)


def test_a_record_from_elsewhere_may_lack_anything() -> None:
    clusters = UnknownClusters()
    clusters.add({"text": "something broke"}, 5.0)
    clusters.add({"captures": 7, "job": "x", "line": True, "node": None}, 5.0)
    assert sorted(each.template for each in clusters.clusters()) == ["", "something broke"]
