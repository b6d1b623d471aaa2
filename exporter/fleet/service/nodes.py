"""The pages of all nodes and of one node."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.core.text.redact import redact
from exporter.fleet.charts.over_time import Lane, TimelineEvent, timeline
from exporter.fleet.history.store import Store
from exporter.fleet.observations import Window
from exporter.fleet.review.event_timeline import Happening, of_node
from exporter.fleet.review.review_contents import NOT_CORRELATED
from exporter.fleet.service.frame import Frame, MissingPage, export_address, list_page, store_of
from exporter.fleet.service.html import clip, count, segment
from exporter.fleet.service.lists import LISTS, Asked, facts_of, rows_of
from exporter.fleet.service.pictures import both, heat_of, locations_table
from exporter.fleet.service.requests import moment_of
from exporter.fleet.service.tables import PageTable, number

SHOWN = 100
LEAST_OF_CARD, MOST_OF_CARD = 3, 0.75  # incidents, and their share of the node's, from which on a card is named
MAX_PEERS = 500
HEADLINE_FACTS = ("gpu_count", "gpu_model", "driver_version", "rocm_version", "rack")


def nodes_page(frame: Frame) -> Response:
    heat = heat_of(frame)
    names = [] if frame.view.store is None else frame.view.store.rows(
        "SELECT DISTINCT unnest(json_keys(facts)) AS name FROM (SELECT facts FROM facts WHERE time < $end"
        " ORDER BY time DESC LIMIT 2000) ORDER BY name LIMIT 1000", {"end": frame.end},
    )  # fmt: skip
    return list_page(
        frame, "nodes", heat=heat, places=locations_table(frame, heat) if heat else None,
        fact_names=[row["name"] for row in names],
    )  # fmt: skip


def node_page(frame: Frame, name: str) -> Response:
    """A node: its timeline, its facts at a moment, and how they differ from its peers'."""
    store = store_of(frame)
    at = moment_of(frame.request, "at", frame.end)
    recorded = store.rows("SELECT time, facts FROM facts WHERE node = $node AND time <= $at ORDER BY time DESC LIMIT 1",
                       {"node": name, "at": at})  # fmt: skip
    if not recorded and not store.rows(
        "SELECT 1 FROM facts WHERE node = $n UNION ALL SELECT 1 FROM incidents WHERE node = $n"
        " UNION ALL SELECT 1 FROM watched_days WHERE node = $n LIMIT 1",
        {"n": name},
    ):
        raise MissingPage(f"No record of a node {clip(name)!r}")
    facts = facts_of(recorded[0]["facts"]) if recorded else {}
    with store.cursor() as db:
        happened = of_node(db, name, Window(start=frame.start, end=frame.end))
    wanted = Asked(start=frame.start, end=frame.end, filters={"node": name}, facts={}, sort="-time", limit=SHOWN)
    rows, total = rows_of(store, "timeline", wanted)
    roots = [event for event in happened if event.role == "root"]
    differences, peers = _differences(store, frame, name, facts, at)
    facts_table = frame.table(
        "facts", "Facts", ("Fact", "Value", "Nodes with it"),
        (
            (key, value, Markup('<a href="{}">which nodes</a>').format(frame.link("/nodes", **{f"fact.{key}": value})))
            for key, value in facts.items()
        ),
        empty="No facts were recorded before this moment.",
    )  # fmt: skip
    return frame.page(
        "node.html", _heading(frame, name, roots), trail=("/nodes", "Nodes"), listing=LISTS["timeline"], rows=rows, total=total,
        sub=" · ".join(f"{key} {clip(facts[key])}" for key in HEADLINE_FACTS if key in facts) or "No facts known",
        chart=timeline_of(frame, happened), differences=differences, peers=peers, facts=facts_table,
        at=f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}", as_of=at,
        since=recorded[0]["time"] if recorded else None, export=lambda form: export_address(frame, "timeline", form, node=name),
        card=_one_card(roots) if facts.get("gpu_count") != "1" else "",
        bad=[bad for bad in (frame.view.fleet_status.result or NOT_CORRELATED).outlier_nodes if bad.node == name],
        address=f"/nodes/{segment(name)}",
    )  # fmt: skip


def _heading(frame: Frame, name: str, roots: list[Happening]) -> str:
    if not roots:
        return f"{clip(name)}: no root incident in this window"
    last = max(roots, key=lambda incident: incident.time)
    title = clip(frame.view.titles.title(last.shown))
    if len(roots) == 1:
        return f"{clip(name)}: one root incident. {title}"
    return f"{clip(name)}: {count(len(roots))} root incidents, the latest: {title}"


def _one_card(roots: list[Happening]) -> str:
    """A sentence where most of the infrastructure's incidents are on one of several GPUs."""
    infrastructure = [event.gpu for event in roots if event.verdict == "infrastructure"]
    [(gpu, most)] = Counter(infrastructure).most_common(1) or [(None, 0)]
    if not gpu or most < LEAST_OF_CARD or most < MOST_OF_CARD * len(infrastructure):
        return ""
    return (
        f"{most} of {len(infrastructure)} incidents of the infrastructure are on GPU {clip(gpu)}: test this card first."
    )


LANES = (
    ("job", "Job logs"),
    ("job_end", "Failed jobs"),
    ("kernel", "Kernel log"),
    ("consequence", "Consequences"),
    ("node_check", "Node check"),
    ("boot", "Reboots"),
    ("facts", "Facts"),
    ("silent", "Silence"),
)


def timeline_of(
    frame: Frame, happened: tuple[Happening, ...], start: float | None = None, end: float | None = None
) -> Markup:
    """Events in lanes over the window, or between two times."""

    def drawn(event: Happening) -> TimelineEvent:
        if event.kind in ("job", "kernel", "node_check"):
            label = f"{frame.view.titles.title(event.shown)}{f', GPU {event.gpu}' if event.gpu else ''}"
            label += f"; {event.note}" if event.note else ""
        else:
            label = redact(event.what)
        verdict = "change" if event.kind in ("facts", "boot") else event.verdict or "unclear"
        return TimelineEvent(time=event.time, end=event.end, what=clip(label), verdict=verdict)

    def kind(event: Happening) -> str:
        return "consequence" if event.role is not None and event.role != "root" else event.kind

    always = ("job", "kernel", "facts", "silent") if start is None else ()  # of a node; a job has what it has
    used = [(key, head) for key, head in LANES if key in always or any(kind(event) == key for event in happened)]
    lanes = [
        Lane(name=head, events=tuple(drawn(event) for event in happened if kind(event) == key)) for key, head in used
    ]
    first, last = frame.start if start is None else start, frame.end if end is None else end
    return both(lambda width: timeline("What happened", lanes, first, last, width=width))


def _differences(store: Store, frame: Frame, name: str, facts: dict[str, str], at: float) -> tuple[PageTable, int]:
    """Facts whose value most nodes of the same GPU model do not share: here, there, and how many have that."""
    rows = store.rows(
        f"""SELECT facts FROM (SELECT node, max_by(facts, time) AS facts FROM facts WHERE time <= $at GROUP BY node)
        WHERE node != $node AND coalesce(facts ->> 'gpu_model', '') = $model ORDER BY hash(node) LIMIT {MAX_PEERS}""",
        {"at": at, "node": name, "model": facts.get("gpu_model", "")},
    )
    peers = [facts_of(row["facts"]) for row in rows]
    differing: list[tuple[Any, ...]] = []
    for fact, value in facts.items():
        if fact.startswith("gpu_serial."):
            continue
        counts: dict[str, int] = {}
        for peer in peers:
            counts[peer.get(fact, "unknown")] = counts.get(peer.get(fact, "unknown"), 0) + 1
        usual, most = max(counts.items(), key=lambda pair: pair[1], default=("", 0))
        if most > len(peers) / 2 and usual != value:
            own = counts.get(value, 0)
            differing.append((fact, value, usual, number(most, f"{count(most)} of {count(len(peers))}"), number(own)))
    table = frame.table(
        "differences", "Differs from its peers", ("Fact", "Here", "Most peers", "Peers with that", "Peers as here"), differing,
        note=f"{count(len(peers))} {'of the ' if len(peers) == MAX_PEERS else ''}nodes of the same GPU model",
        empty="No fact differs from those of most peers." if peers else "No other node has the same GPU model.",
    )  # fmt: skip
    return table, len(peers)
