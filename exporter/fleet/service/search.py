"""The page of what somebody searches: by its id the thing itself, else whatever holds the words."""

from collections.abc import Iterator
from typing import Any

from starlette.responses import RedirectResponse, Response

from exporter.core.text.phrases import printable
from exporter.core.text.redact import redact
from exporter.fleet.history.store import Store
from exporter.fleet.service.frame import Frame, store_of
from exporter.fleet.service.html import clip, segment
from exporter.fleet.service.tables import PageTable, link, linked, number, tag, when

MAX_CHARS = 200  # of what is searched
MAX_HITS = 100  # of each kind

# By id, the likeliest kind first. A node may be known by its records of any kind.
_EXACT = (
    ("nodes", "SELECT node FROM facts WHERE node = $q UNION ALL SELECT node FROM watched_days WHERE node = $q"),
    ("jobs", "SELECT job FROM incidents WHERE job = $q"),
    ("incidents", "SELECT id FROM incidents WHERE id = $q"),
    ("causes", "SELECT id FROM incidents WHERE root_cause = $q OR signature = $q"),
    ("nodes", "SELECT node FROM incidents WHERE node = $q"),
)
_NODES = """SELECT node AS it, sum(n) AS n, max(last) AS last FROM (
    SELECT node, count(*) AS n, max(time) AS last FROM incidents GROUP BY node
    UNION ALL SELECT node, 0, max(last) FROM watched_days GROUP BY node
    UNION ALL SELECT node, 0, max(time) FROM facts GROUP BY node) WHERE contains(lower(node), $q) GROUP BY node"""
_FACTS = """SELECT key AS fact, value ->> '$' AS value, count(*) AS n
    FROM (SELECT max_by(facts, time) AS facts FROM facts GROUP BY node) AS latest, json_each(latest.facts)
    WHERE contains(lower(value ->> '$'), $q) OR lower(key) = $q GROUP BY ALL"""
_LINES = """SELECT id, time, node, job, text FROM incidents WHERE contains(lower(text), $q)"""


def search_page(frame: Frame) -> Response:
    """Redirects to the page of an id; otherwise the nodes, jobs, users, causes, facts and lines that hold the words."""
    text = frame.request.query_params.get("q", "").strip()[:MAX_CHARS]
    store, titles = store_of(frame), frame.view.titles
    for kind, query in _EXACT if text else ():
        if store.rows(f"{query} LIMIT 1", {"q": text}):
            return RedirectResponse(frame.link(f"/{kind}/{segment(text)}"), 303)
    if text and titles.title(text) != text:
        return RedirectResponse(frame.link(f"/causes/{segment(text)}"), 303)
    found = [table for table in _tables(frame, store, text) if table.total] if text else []
    shown = f"“{clip(printable(redact(text)))}”"
    heading = f"Search: {shown}" if found else f"Nothing found for {shown}" if text else "Nothing to search for"
    return frame.page(
        "sections.html", heading, tables=found,
        sub="" if found else "All records of this service were searched, and the titles of causes and signatures.",
    )  # fmt: skip


def _tables(frame: Frame, store: Store, text: str) -> Iterator[PageTable]:
    words = text.lower()

    def hits(query: str, order: str) -> list[dict[str, Any]]:
        return store.rows(f"SELECT * FROM ({query}) ORDER BY {order} LIMIT {MAX_HITS}", {"q": words})

    def of_incidents(column: str) -> list[dict[str, Any]]:
        return hits(
            f"""SELECT {column} AS it, count(*) AS n, max(time) AS last FROM incidents
            WHERE contains(lower({column}), $q) GROUP BY {column}""", "n DESC, it",
        )  # fmt: skip

    heads = ("Incidents, ever", "Latest (UTC)")
    yield frame.table("causes", "Causes and signatures", ("Title", "Kind", "Whose"), _known(frame, words.split()))
    yield frame.table("nodes", "Nodes", ("Node", *heads), (
        (link(frame.to, "nodes", row["it"]), number(row["n"]), when(row["last"])) for row in hits(_NODES, "n DESC, it")
    ), width="half")  # fmt: skip
    yield frame.table("jobs", "Jobs", ("Job", *heads), (
        (link(frame.to, "jobs", row["it"]), number(row["n"]), when(row["last"])) for row in of_incidents("job")
    ), width="half")  # fmt: skip
    yield frame.table("users", "Users", ("User", *heads), (
        (linked(frame.link("/incidents", user=row["it"]), row["it"]), number(row["n"]), when(row["last"]))
        for row in of_incidents("job_user")
    ), width="half")  # fmt: skip
    yield frame.table("facts", "Facts of nodes", ("Fact", "Value", "Nodes"), (
        (row["fact"], linked(frame.link("/nodes", **{f"fact.{row['fact']}": row["value"]}), row["value"]), number(row["n"]))
        for row in hits(_FACTS, "n DESC, fact, value")
    ), width="half")  # fmt: skip
    yield frame.table("lines", "Lines", ("Time (UTC)", "Incident", "Node", "Job", "Line"), (
        (when(row["time"]), link(frame.to, "incidents", row["id"]), link(frame.to, "nodes", row["node"]),
         link(frame.to, "jobs", row["job"]) if row["job"] else None, clip(redact(row["text"])))
        for row in hits(_LINES, "time DESC, id")
    ), note=f"The latest {MAX_HITS} at most")  # fmt: skip


def _known(frame: Frame, words: list[str]) -> Iterator[tuple[Any, ...]]:
    """The causes and signatures of the catalogue whose id or title holds all words."""
    titles = frame.view.titles
    for kind, names in (("root cause", titles.catalogue.root_causes), ("signature", titles.catalogue.signatures)):
        for name in sorted(names):
            title = titles.title(name)
            if all(word in f"{name} {title}".lower() for word in words):
                yield link(frame.to, "causes", name, title, with_id=True), kind, tag(titles.about(name).verdict)
