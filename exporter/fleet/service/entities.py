"""The pages of one cause, node, job or incident, and of what the service cannot see."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.core.text.printable import printable
from exporter.core.text.redact import redact
from exporter.fleet.charts.timeline import Event, Lane, timeline
from exporter.fleet.history.store import Store
from exporter.fleet.service.frame import Frame, NotFound, export_address
from exporter.fleet.service.html import clip, count, segment, time_of
from exporter.fleet.service.lists import LISTS, Asked, facts_of, rows_of
from exporter.fleet.service.overview import SILENT, both, trend

SHOWN = 100
_CAUSE = "CASE WHEN root_cause IN ('unknown', '') THEN signature ELSE root_cause END"


def store_of(frame: Frame) -> Store:
    """The history. Raises NotFound where the service has none."""
    if frame.view.store is None:
        raise NotFound("Pages of nodes, jobs and incidents need the nodes' journals (--journal DIR)")
    return frame.view.store


def cause_page(frame: Frame, name: str) -> Response:
    """A root cause or signature, also one that the catalogue does not have."""
    store, about = store_of(frame), frame.view.titles.about(name)
    of = {"name": name, **frame.span}
    condition = f"({_CAUSE} = $name OR signature = $name) AND time >= $start AND time < $end"
    rows, total = _list(frame, "incidents", {"cause": name}, 20)
    if not total:
        rows, total = _list(frame, "incidents", {"signature": name}, 20)
    nodes = store.rows(f"SELECT node, count(*) AS n, max(time) AS last FROM incidents WHERE {condition} "
                       "GROUP BY node ORDER BY n DESC, node LIMIT 15", of)  # fmt: skip
    jobs = store.rows(f"SELECT job, max(job_user) AS u, count(*) AS n, max(time) AS last FROM incidents WHERE {condition} "
                      "AND job IS NOT NULL GROUP BY job ORDER BY last DESC LIMIT 15", of)  # fmt: skip
    evidence = store.rows(f"""SELECT e ->> 'what' AS what, e ->> 'value' AS value, count(*) AS n FROM (
        SELECT unnest(CAST(record -> '$.evidence' AS JSON[])) AS e FROM incidents WHERE {condition})
        GROUP BY ALL ORDER BY n DESC LIMIT 15""", of)  # fmt: skip
    return frame.page(
        "cause.html", clip(about["title"]), trail=("/causes", "Causes"), name=name, about=about, rows=rows,
        sub=f"{about['kind'].capitalize()} · {count(total)} incidents in this window", listing=LISTS["incidents"],
        trend=trend(frame, f"({_CAUSE} = $name OR signature = $name)", name=name),
        nodes=[(_link(frame, "nodes", r["node"]), r["n"], time_of(r["last"])) for r in nodes],
        jobs=[(_link(frame, "jobs", r["job"]), r["u"] or "–", r["n"], time_of(r["last"])) for r in jobs],
        evidence=[(r["what"] or "–", r["value"] or "–", r["n"]) for r in evidence],
    )  # fmt: skip


def node_page(frame: Frame, name: str) -> Response:
    """A node: its timeline, its facts as of the window's end, and how they differ from its peers'."""
    store = store_of(frame)
    known = store.rows("SELECT time, facts FROM facts WHERE node = $node AND time < $end ORDER BY time DESC LIMIT 1",
                       {"node": name, "end": frame.end})  # fmt: skip
    if not known and not store.rows(
        "SELECT 1 FROM incidents WHERE node = $n UNION ALL SELECT 1 FROM watched_days WHERE node = $n LIMIT 1",
        {"n": name},
    ):
        raise NotFound(f"No record of a node {clip(name)!r}")
    facts = facts_of(known[0]["facts"]) if known else {}
    rows, total = _list(frame, "timeline", {"node": name}, SHOWN)
    peers, differences = _differences(store, frame, name, facts)
    roots = sum(row["kind"] == "incident" and row["role"] == "root" for row in rows)
    return frame.page(
        "entity.html", f"{clip(name)}: {count(roots)} root {'incident' if roots == 1 else 'incidents'}",
        trail=("/nodes", "Nodes"), sub=" · ".join(
            f"{k} {clip(facts[k])}" for k in ("gpu_model", "driver_version", "rack") if k in facts),
        chart=_chart(frame, rows), rows=rows, total=total, listing=LISTS["timeline"], hidden=("node",),
        facts=[(k, v) for k, v in facts.items()], as_of=frame.end, differences=differences, peers=peers,
        export=lambda form: export_address(frame, "timeline", form, node=name),
    )  # fmt: skip


def job_page(frame: Frame, name: str) -> Response:
    """A job: its incidents in order, with root and consequences."""
    span = store_of(frame).rows("SELECT min(time) AS a, max(time) AS b FROM incidents WHERE job = $job", {"job": name})[
        0
    ]
    if span["a"] is None:
        raise NotFound(f"No incident of a job {clip(name)!r}")
    frame.start, frame.end = min(frame.start, span["a"] - 60), max(frame.end, span["b"] + 60)
    frame.span = {"start": frame.start, "end": frame.end}
    rows, total = _list(frame, "timeline", {"job": name}, SHOWN, sort="time")
    first = next((row for row in rows if row["role"] == "root"), rows[0])
    nodes = len({row["node"] for row in rows})
    return frame.page(
        "entity.html", f"Job {clip(name)}: {clip(frame.view.titles.title(first['cause']))}", trail=("/jobs", "Jobs"),
        sub=f"{count(total)} incidents on {count(nodes)} {'node' if nodes == 1 else 'nodes'}",
        chart=_chart(frame, rows, span["a"] - 60, span["b"] + 60), rows=rows, total=total, listing=LISTS["timeline"],
        hidden=("job",), facts=[], as_of=frame.end, differences=None, peers=0,
        export=lambda form: export_address(frame, "timeline", form, job=name),
    )  # fmt: skip


def incident_page(frame: Frame, name: str) -> Response:
    """An incident: its line, evidence, cause, and what it caused."""
    store = store_of(frame)
    found = store.rows("SELECT * FROM incidents WHERE id = $id", {"id": name})
    if not found:
        raise NotFound(f"No incident {clip(name)!r}; the history may have dropped it")
    row = found[0]
    record = _record(row["record"])
    known = store.rows("SELECT facts FROM facts WHERE node = $node AND time <= $time ORDER BY time DESC LIMIT 1",
                       {"node": row["node"], "time": row["time"]})  # fmt: skip
    family = store.rows(
        f"SELECT *, {_CAUSE} AS cause, job_user AS user FROM incidents WHERE id IN ($parent, $id)"
        " OR caused_by IN ($parent, $id) ORDER BY time LIMIT 100", {"id": name, "parent": row["caused_by"] or name},
    )  # fmt: skip
    at = f"{row['path'] or 'log not recorded'}{':' + str(row['line']) if row['line'] else ''}"
    titles = frame.view.titles
    properties = [
        ("Signature", titles.title(row["signature"])), ("Time (UTC)", time_of(row["time"])),
        ("Node", _link(frame, "nodes", row["node"])),
        ("Job", _link(frame, "jobs", row["job"]) if row["job"] else "–"), ("User", row["job_user"] or "–"),
        ("GPU", row["gpu"] or "–"), ("Role", row["role"]), ("Severity", row["severity"] or "–"),
    ]  # fmt: skip
    return frame.page(
        "incident.html", clip(titles.title(row["root_cause"] if row["root_cause"] != "unknown" else row["signature"])),
        trail=("/incidents", "Incidents"), sub=Markup("{} UTC on {}").format(
            time_of(row["time"]), _link(frame, "nodes", row["node"])),
        row=row, where=at, lines=[str(each) for each in _listed(record, "excerpt")] or ([row["text"]] if row["text"] else []),
        evidence=[tuple(str(e.get(k, "")) for k in ("what", "value", "why")) for e in _listed(record, "evidence")
                  if isinstance(e, dict)],
        same_time=[tuple(str(e.get(k) or "–") for k in ("signature", "gpu", "text")) for e in _listed(record, "same_time")
                   if isinstance(e, dict)],
        remediation=str(record.get("remediation") or titles.about(row["root_cause"])["remediation"] or ""),
        other_causes=[c for c in titles.about(row["signature"])["related"] if c != row["root_cause"]],
        properties=properties, family=family if len(family) > 1 else [], listing=LISTS["incidents"],
        facts=list(facts_of(known[0]["facts"]).items()) if known else [],
    )  # fmt: skip


def quality_page(frame: Frame) -> Response:
    """What the service could not read or see."""
    store = frame.view.store
    sections: list[tuple[str, str, tuple[str, ...], list[tuple[Any, ...]]]] = []
    gaps = (frame.view.standing.result or {}).get("gaps", ())
    sections.append(
        ("Missing or less exact in the findings", "", ("What", "Count"), [(g["what"], g["count"]) for g in gaps])
    )
    silent: list[dict[str, Any]] = []
    if store is not None:
        silent = store.rows(SILENT, {"day": frame.end - 86400, **frame.span})
        bad = store.rows(
            "SELECT kind, path, line, count, what, time FROM gaps ORDER BY time DESC, path, line LIMIT 500"
        )
        ahead = store.rows("""SELECT node, count(*) AS n, max(time) AS latest FROM (
            SELECT node, time FROM incident_rows UNION ALL SELECT node, time FROM heartbeat_rows)
            WHERE time > (SELECT horizon FROM about) GROUP BY node ORDER BY n DESC LIMIT 100""")
        targets = store.rows("""SELECT node, state, what, pulled, failing_since, behind FROM targets
            WHERE state NOT IN ('ok', 'new') ORDER BY failing_since, node LIMIT 500""")
        files = store.rows("SELECT path, position, seen FROM cursors ORDER BY seen DESC, path LIMIT 200")
        if targets:
            rows = [(r["node"], r["state"], r["what"], time_of(r["pulled"]), time_of(r["failing_since"]),
                     count(r["behind"])) for r in targets]  # fmt: skip
            heads = ("Node", "State", "What", "Last pulled (UTC)", "Failing since", "Bytes waiting")
            sections.append(("Nodes whose journals cannot be pulled, or not to their end", "", heads, rows))
        sections += [
            ("Nodes not seen for a day", "Seen in this window, but not on its last day", ("Node", "Last seen (UTC)"),
             [(_link(frame, "nodes", r["node"]), time_of(r["seen"])) for r in silent[:500]]),
            ("Clocks that run ahead", "Records from the future are kept, and shown when their time has come",
             ("Node", "Records", "Latest"), [(_link(frame, "nodes", r["node"]), r["n"], time_of(r["latest"])) for r in ahead]),
            ("Journals that could not be read whole", "", ("Kind", "Where", "Count", "What", "Seen (UTC)"),
             [(r["kind"].replace("_", " "), r["path"] + (f":{r['line']}" if r["line"] else ""), r["count"], r["what"],
               time_of(r["time"])) for r in bad]),
            ("Journals", "The newest 200", ("File", "Bytes read", "Read (UTC)"),
             [(r["path"], count(r["position"]), time_of(r["seen"])) for r in files]),
        ]  # fmt: skip
    heading = f"Data quality: {count(len(silent))} nodes not seen for a day" if silent else "Data quality"
    return frame.page("sections.html", heading, sections=sections)


def _differences(store: Store, frame: Frame, name: str, facts: dict[str, str]) -> tuple[int, list[tuple[Any, ...]]]:
    """Facts whose value most nodes of the same GPU model do not share: here, there, and how many have that."""
    rows = store.rows(
        """SELECT facts FROM (SELECT node, max_by(facts, time) AS facts FROM facts WHERE time < $end GROUP BY node)
        WHERE node != $node AND coalesce(facts ->> 'gpu_model', '') = $model ORDER BY hash(node) LIMIT 500""",
        {"end": frame.end, "node": name, "model": facts.get("gpu_model", "")},
    )
    peers = [facts_of(row["facts"]) for row in rows]
    found: list[tuple[Any, ...]] = []
    for fact, value in facts.items():
        if fact.startswith("gpu_serial."):
            continue
        counts: dict[str, int] = {}
        for peer in peers:
            counts[peer.get(fact, "unknown")] = counts.get(peer.get(fact, "unknown"), 0) + 1
        usual, most = max(counts.items(), key=lambda each: each[1], default=("", 0))
        if most > len(peers) / 2 and usual != value:
            found.append((fact, value, usual, f"{most} of {len(peers)}"))
    return len(peers), found


def _chart(frame: Frame, rows: list[dict[str, Any]], start: float | None = None, end: float | None = None) -> Markup:
    titles = frame.view.titles
    lanes = [
        Lane(name=head, events=tuple(
            Event(time=row["time"], what=printable(clip(titles.title(row["cause"]) if row["cause"] else redact(row["what"]))),
                  verdict="change" if kind == "facts" else "infrastructure" if row["role"] == "root" else "unclear")
            for row in sorted(rows, key=lambda each: float(each["time"]))
            if row["kind"] == kind and (kind != "incident" or (row["role"] == "root") == (head == "Root incidents"))))
        for kind, head in (("incident", "Root incidents"), ("incident", "Consequences"), ("facts", "Facts"),
                           ("silence", "Silence"))
    ]  # fmt: skip
    return both(lambda width: timeline("What happened", lanes, start or frame.start, end or frame.end, width=width))


def _list(
    frame: Frame, name: str, filters: dict[str, str], limit: int, sort: str = ""
) -> tuple[list[dict[str, Any]], int]:
    wanted = Asked(
        start=frame.start, end=frame.end, filters=filters, facts={}, sort=sort or LISTS[name].sort, limit=limit
    )  # fmt: skip
    return rows_of(store_of(frame), name, wanted)


def _link(frame: Frame, kind: str, name: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(frame.link(f"/{kind}/{segment(name)}"), printable(clip(name)))


def _record(text: str | None) -> dict[str, Any]:
    try:
        return dict(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}


def _listed(record: dict[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    return value[:20] if isinstance(value, list) else []
