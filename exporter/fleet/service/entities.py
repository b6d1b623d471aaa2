"""The pages of one cause, job or incident."""

import json
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.config import packs
from exporter.core.authoring.explanation import explanation_of
from exporter.core.catalogue.outcomes import Outlook, outlook
from exporter.core.collectives import collective_texts
from exporter.core.diagnosis.record_schema import IncidentRecord, RefusedRecord, incident_of
from exporter.core.diagnosis.restarts import restart_advice
from exporter.core.model import DOMAIN_WORDS, RESTART_WORDS, STRENGTHS
from exporter.core.text.phrases import counted
from exporter.fleet.history.schema import CAUSE, IS_ROOT
from exporter.fleet.observations import Window
from exporter.fleet.review.event_timeline import of_job
from exporter.fleet.review.review_contents import NOT_CORRELATED
from exporter.fleet.service.finding_list import finding_items
from exporter.fleet.service.frame import Frame, MissingPage, export_address, store_of
from exporter.fleet.service.html import clip, segment, time_of
from exporter.fleet.service.lists import LISTS, Asked, facts_of, rows_of
from exporter.fleet.service.nodes import timeline_of
from exporter.fleet.service.pictures import rollout_marks, trend
from exporter.fleet.service.tables import Cell, PageTable, link, linked, number, tag, when
from exporter.web.page import outlook_html, with_code

SHOWN = 100
LATEST = 20
MAX_ROWS = 500  # of a table on a cause's page; the API has all


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """A job's verdict and where it comes from."""

    verdict: str
    cause: str
    remediation: str
    note: str


def cause_page(frame: Frame, name: str) -> Response:
    """A root cause or signature, also one that the catalogue does not have."""
    store, titles = store_of(frame), frame.view.titles
    about = titles.about(name)
    is_seen = "SELECT 1 FROM incidents WHERE root_cause = $name OR signature = $name LIMIT 1"
    if about.kind == "id" and not store.rows(is_seen, {"name": name}):
        raise MissingPage(f"No cause or signature {clip(name)!r}")
    own = "signature" if about.kind == "signature" else "cause"
    rows, total = _list(frame, "incidents", {own: name}, LATEST)
    if not total and own == "cause":
        own = "signature"
        rows, total = _list(frame, "incidents", {own: name}, LATEST)
    column = "signature" if own == "signature" else CAUSE
    of = {"name": name, **frame.span}
    condition = f"{column} = $name AND time >= $start AND time < $end"

    def grouped(by: str) -> list[dict[str, Any]]:
        return store.rows(
            f"""SELECT {by} AS it, count(*) AS n, count(DISTINCT node) AS nodes, count(DISTINCT job) AS jobs,
            max(job_user) AS u, max(time) AS last FROM incidents WHERE {condition} AND it IS NOT NULL
            GROUP BY it ORDER BY n DESC, last DESC, it LIMIT {MAX_ROWS}""", of,
        )  # fmt: skip

    count_roots = store.rows(
        f"SELECT count(*) AS n, count(DISTINCT node) AS nodes FROM incidents WHERE {condition} AND {IS_ROOT}", of
    )[0]
    other = "root_cause" if own == "signature" else "signature"
    evidence = store.rows(f"""SELECT e ->> 'what' AS what, e ->> 'value' AS value, count(*) AS n FROM (
        SELECT unnest(CAST(record -> '$.evidence' AS JSON[])) AS e FROM incidents WHERE {condition})
        GROUP BY ALL ORDER BY n DESC LIMIT 50""", of)  # fmt: skip
    kind = {"id": "Not in the catalogue"}.get(about.kind, about.kind.capitalize())
    findings = [
        finding for finding in (frame.view.fleet_status.result or NOT_CORRELATED).findings
        if name == finding.signature or (own == "cause" and finding.signature in about.related)
    ]  # fmt: skip
    explanation = explanation_of(titles.catalogue, name, lambda signature: packs.outcomes(titles.catalogue, signature))
    return frame.page(
        "cause.html", clip(about.title), trail=("/causes", "Causes"), name=name, about=about, rows=rows, total=total,
        sub=f"{kind} · {counted(count_roots['n'], 'root incident')} on {counted(count_roots['nodes'], 'node')} in this window, "
            f"{counted(total - count_roots['n'], 'consequence')}",
        listing=LISTS["incidents"], all=frame.link("/incidents", **{own: name}), findings=finding_items(frame, findings),
        explanation=explanation,
        reports=[(one, outlook_html(shown)) for one, shown in explanation.outlooks] if explanation else [],
        trend=trend(frame, f"{column} = $name", rollout_marks(frame.view.fleet_status.result, frame.start), name=name),
        export=lambda form: export_address(frame, "incidents", form, **{own: name}),
        parts=frame.table(
            "parts", "Root causes of these incidents" if own == "signature" else "Signatures of these incidents",
            ("Root cause" if own == "signature" else "Signature", "Incidents", "Nodes", "Latest (UTC)"),
            ((link(frame.to, "causes", r["it"], titles.title(r["it"]), with_id=True) if r["it"] not in ("unknown", "")
              else "Cause unknown", number(r["n"]), number(r["nodes"]), when(r["last"])) for r in grouped(other)),
            width="half"),
        nodes=frame.table(
            "nodes", "Nodes", ("Node", "Incidents", "Latest (UTC)"),
            ((link(frame.to, "nodes", r["it"]), number(r["n"]), when(r["last"])) for r in grouped("node")[:MAX_ROWS]),
            width="half"),
        jobs=frame.table(
            "jobs", "Jobs", ("Job", "User", "Incidents", "Latest (UTC)"),
            ((link(frame.to, "jobs", r["it"]), r["u"], number(r["n"]), when(r["last"])) for r in grouped("job")),
            width="half"),
        users=frame.table(
            "users", "Users", ("User", "Incidents", "Jobs", "Nodes", "Latest (UTC)"),
            ((_user(frame, own, name, r["it"]), number(r["n"]), number(r["jobs"]), number(r["nodes"]), when(r["last"]))
             for r in grouped("job_user")), width="half"),
        evidence=frame.table("evidence", "Evidence seen", ("What", "Value", "Incidents"),
                             ((_titled(frame, r["what"]), _titled(frame, r["value"]), number(r["n"])) for r in evidence),
                             empty="No evidence is recorded with these incidents."),
    )  # fmt: skip


def _user(frame: Frame, own: str, cause: str, user: str) -> Cell:
    """A user, with a link to the incidents of this cause."""
    return linked(frame.link("/incidents", **{own: cause, "user": user}), user)


def _titled(frame: Frame, text: str | None) -> Any:
    """A value of evidence; where it is an id, with its title."""
    if not text or text == "unknown":
        return text
    title = frame.view.titles.title(text)
    return link(frame.to, "causes", text, title, with_id=True) if title != text else text


def job_page(frame: Frame, name: str) -> Response:
    """A job: its incidents in order, with root and consequences, and its verdict."""
    store = store_of(frame)
    span = store.rows("SELECT min(time) AS a, max(time) AS b FROM incidents WHERE job = $job", {"job": name})[0]
    if span["a"] is None:
        raise MissingPage(f"No incident of a job {clip(name)!r}")
    first, last = span["a"] - 60, span["b"] + 60
    frame.start, frame.end = min(frame.start, first), max(frame.end, last)
    frame.span = {"start": frame.start, "end": frame.end}
    rows, total = _list(frame, "timeline", {"job": name}, SHOWN, sort="time")
    with store.cursor() as db:
        happened = of_job(db, name, Window(start=frame.start, end=frame.end))
    root = next((incident for incident in happened if incident.role == "root"), happened[0])
    unknown = root.root_cause in (None, "", "unknown")
    cause = root.what if unknown else str(root.root_cause)
    about = frame.view.titles.about(cause)
    who = store.rows(
        f"""SELECT max(job_user) AS u, max(account) AS a, max(job_name) AS n, max(image) AS i, count(*) AS incidents,
        count(*) FILTER (WHERE {IS_ROOT}) AS roots FROM incidents WHERE job = $job""", {"job": name},
    )[0]  # fmt: skip
    per_node = store.rows(
        f"""SELECT node, count(*) AS n, count(*) FILTER (WHERE {IS_ROOT}) AS roots, min(time) AS first FROM incidents
        WHERE job = $job GROUP BY node ORDER BY first, node LIMIT 1000""", {"job": name},
    )  # fmt: skip
    said = store.rows(f"SELECT record FROM incidents WHERE job = $job AND {IS_ROOT} LIMIT 1000", {"job": name})
    restart = restart_advice(checked for row in said for checked in _checked(_record(row["record"])))
    nodes = frame.table(
        "nodes", "Nodes", ("Node", "Incidents", "Root incidents", "First (UTC)"),
        ((link(frame.to, "nodes", r["node"]), number(r["n"]), number(r["roots"]), when(r["first"])) for r in per_node),
    )  # fmt: skip
    owner = [
        f"{key} {clip(who[at])}"
        for key, at in (("user", "u"), ("account", "a"), ("name", "n"), ("image", "i"))
        if who[at]
    ]
    return frame.page(
        "entity.html", f"Job {clip(name)}: {clip(frame.view.titles.title(cause))}", trail=("/jobs", "Jobs"),
        sub=f"{counted(who['incidents'], 'incident')} on {counted(nodes.total, 'node')}"
            + "".join(f" · {incident}" for incident in owner),
        why=Why(verdict=root.verdict or "unclear", cause=cause, remediation=about.remediation,
                note=("The root cause is not known; this is the first root incident's signature. " if unknown else
                      "The root cause of the first root incident. ")
                     + f"{counted(who['roots'], 'root incident')}, {counted(who['incidents'] - who['roots'], 'consequence')}. "
                     + f"{str(restart).capitalize()}."),
        chart=timeline_of(frame, happened, first, last), rows=rows, total=total, listing=LISTS["timeline"], hidden=("job",),
        nodes=nodes, export=lambda form: export_address(frame, "timeline", form, job=name),
    )  # fmt: skip


def incident_page(frame: Frame, name: str) -> Response:
    """An incident: its line, evidence, cause, and what it caused."""
    store = store_of(frame)
    rows_of_id = store.rows("SELECT * FROM incidents WHERE id = $id", {"id": name})
    if not rows_of_id:
        raise MissingPage(f"No incident {clip(name)!r}; the history may have dropped it")
    row = rows_of_id[0]
    record = _record(row["record"])
    recorded = store.rows("SELECT facts FROM facts WHERE node = $node AND time <= $time ORDER BY time DESC LIMIT 1",
                       {"node": row["node"], "time": row["time"]})  # fmt: skip
    family = store.rows(
        f"SELECT *, {CAUSE} AS cause, job_user AS user FROM incidents WHERE id IN ($parent, $id)"
        " OR caused_by IN ($parent, $id) ORDER BY time LIMIT 100", {"id": name, "parent": row["caused_by"] or name},
    )  # fmt: skip
    at = f"{row['path'] or 'log not recorded'}{':' + str(row['line']) if row['line'] else ''}"
    titles = frame.view.titles
    signature = link(frame.to, "causes", row["signature"], titles.title(row["signature"]), with_id=True)
    properties = [
        ("Signature", signature), ("Time (UTC)", time_of(row["time"])), ("Node", link(frame.to, "nodes", row["node"])),
        ("Job", link(frame.to, "jobs", row["job"]) if row["job"] else None), ("User", row["job_user"]), ("GPU", row["gpu"]),
        ("Role", "root" if row["role"] == "root" else "consequence of another incident"), ("Severity", row["severity"]),
        ("Where the fault lies", DOMAIN_WORDS[row["domain"]]),
        ("Restart the job", RESTART_WORDS[row["restart"]]),
    ]  # fmt: skip
    unknown = row["root_cause"] in ("unknown", "", None)
    facts = facts_of(recorded[0]["facts"]) if recorded else {}
    shown = outlook(packs.outcomes(titles.catalogue, row["signature"]), facts) if unknown else Outlook()
    return frame.page(
        "incident.html", clip(titles.title(row["signature"] if unknown else row["root_cause"])),
        trail=("/incidents", "Incidents"), sub=Markup("{} UTC on {}").format(
            time_of(row["time"]), link(frame.to, "nodes", row["node"])),
        row=row, where=at, unknown=unknown,
        lines=[str(line) for line in _listed(record, "excerpt")] or ([row["text"]] if row["text"] else []),
        evidence=[(_titled(frame, str(e.get("what", ""))), _titled(frame, str(e.get("value", ""))), str(e.get("why", "")))
                  for e in _listed(record, "evidence") if isinstance(e, dict)],
        ranks=_rank_texts(record),
        same_time=[(_titled(frame, str(e.get("signature") or "–")), *(str(e.get(k) or "–") for k in ("gpu", "text")))
                   for e in _listed(record, "same_time") if isinstance(e, dict)],
        remediation=str(record.get("remediation") or titles.about(row["root_cause"]).remediation or ""),
        others=_other_causes(frame, row["signature"], row["root_cause"]), properties=properties,
        reports=outlook_html(shown) if shown.sentences else "", how_sure=_how_sure(frame, row["root_cause"]),
        family=family if len(family) > 1 else [], listing=LISTS["incidents"],
        facts=frame.table("facts", "Facts at that time", ("Fact", "Value"), facts.items(),
                          empty="No facts were recorded before it."),
        node_then=frame.link(f"/nodes/{segment(row['node'])}", at=f"{row['time']:.0f}"),
    )  # fmt: skip


def _how_sure(frame: Frame, root_cause: str | None) -> str:
    """How well a root cause is established; empty for one that the catalogue does not have."""
    cause = frame.view.titles.catalogue.root_causes.get(root_cause or "")
    return f"Evidence {cause.strength}: {STRENGTHS[cause.strength]}." if cause else ""


def _other_causes(frame: Frame, signature: str, chosen: str | None) -> PageTable:
    """The other root causes of a signature, with what would have decided for them."""
    titles = frame.view.titles
    rows = [
        (link(frame.to, "causes", name, other.title, with_id=True), tag(other.verdict), with_code(other.sentences[0]))
        for name in titles.about(signature).related
        if name != chosen and (other := explanation_of(titles.catalogue, name))
    ]
    about = titles.catalogue.signatures.get(signature)
    return frame.table(
        "others", "Why not another cause", ("Root cause", "Whose", "What would decide for it"), rows,
        note="These were considered; what they need was not in the evidence, or the chosen cause is more specific",
        empty=(about and about.undecided) or "The catalogue has no other cause for this signature.",
    )  # fmt: skip


def _list(
    frame: Frame, name: str, filters: dict[str, str], limit: int, sort: str = ""
) -> tuple[list[dict[str, Any]], int]:
    wanted = Asked(
        start=frame.start, end=frame.end, filters=filters, facts={}, sort=sort or LISTS[name].sort, limit=limit
    )  # fmt: skip
    return rows_of(store_of(frame), name, wanted)


def _rank_texts(record: dict[str, Any]) -> list[str]:
    """Where the ranks of a job wait, in words."""
    return [text for one in _checked(record) for text in collective_texts(one.model_dump()["collectives"])]


def _checked(record: dict[str, Any]) -> list[IncidentRecord]:
    """The incident, unless the record does not pass."""
    try:
        return [incident_of(record)]
    except RefusedRecord:
        return []


def _record(text: str | None) -> dict[str, Any]:
    try:
        return dict(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}


def _listed(record: dict[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    return value[:20] if isinstance(value, list) else []
