"""The page of data quality: what the service could not read or see."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.core.text.phrases import counted
from exporter.fleet.history.watched import IN_WINDOW
from exporter.fleet.observations import Window
from exporter.fleet.review.queries import silent_nodes
from exporter.fleet.review.review_contents import NOT_CORRELATED
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.tables import PageTable, link, number, when

AHEAD = """SELECT node, count(*) AS n, max(time) AS latest FROM (
SELECT node, time FROM incident_rows UNION ALL SELECT node, time FROM heartbeat_rows)
WHERE time > (SELECT horizon FROM about) GROUP BY node ORDER BY n DESC LIMIT 500"""
TARGETS = """SELECT node, state, what, pulled, failing_since, behind FROM targets
WHERE state NOT IN ('ok', 'new') ORDER BY failing_since, node LIMIT 500"""
MAX_ROWS = 500
SUBTITLE = "What the service could not see or read, and what the other pages therefore do not include"


def quality_page(frame: Frame) -> Response:
    """What the service could not read or see."""
    store = frame.view.store
    gaps = (frame.view.fleet_status.result or NOT_CORRELATED).gaps
    tables = [
        frame.table("gaps", "Missing or less exact in the findings", ("What", "Count"),
                    ((gap.message, number(gap.count)) for gap in gaps), empty="Nothing is missing.")
    ]  # fmt: skip
    if store is None:
        return frame.page("sections.html", "Data quality", tables=tables, sub=SUBTITLE)

    def rows(query: str, **parameters: Any) -> list[dict[str, Any]]:
        return store.rows(query, parameters)

    with store.cursor() as db:
        silent = silent_nodes(db, Window(start=frame.start, end=frame.end))
    targets = rows(TARGETS)
    bad = rows(f"SELECT kind, path, line, count, what, time FROM gaps ORDER BY time DESC, path, line LIMIT {MAX_ROWS}")
    files = rows(f"SELECT path, position, seen FROM cursors ORDER BY seen DESC, path LIMIT {MAX_ROWS}")
    tables += [
        _table(frame, "silent", "Nodes not seen for a day", ("Node", "Last seen (UTC)"),
               ((link(frame.to, "nodes", node.node), when(node.last_seen)) for node in silent[:MAX_ROWS]),
               "Seen in this window or the one before, but not on its last day",
               "Every node was seen on the window's last day."),
        _table(frame, "ahead", "Clocks that run ahead", ("Node", "Records", "Latest"),
               ((link(frame.to, "nodes", r["node"]), number(r["n"]), when(r["latest"])) for r in rows(AHEAD)),
               "Records from the future are kept, and shown when their time has come", "No record is from the future."),
        _table(frame, "unreadable", "Journals that could not be read whole", ("Kind", "Where", "Count", "What", "Seen (UTC)"),
               ((r["kind"].replace("_", " "), r["path"] + (f":{r['line']}" if r["line"] else ""), number(r["count"]), r["what"],
                 when(r["time"])) for r in bad), "", "Every journal was read whole."),
    ]  # fmt: skip
    if targets or rows("SELECT 1 FROM targets LIMIT 1"):
        tables.append(
            _table(frame, "pulled", "Nodes whose journals cannot be pulled, or not to their end",
                   ("Node", "State", "What", "Last pulled (UTC)", "Failing since", "Bytes waiting"),
                   ((r["node"], r["state"], r["what"], when(r["pulled"]), when(r["failing_since"]), number(r["behind"]))
                    for r in targets), "", "Every node's journal is pulled to its end.",
                   Markup('<a href="{}">all pulled nodes</a>').format(frame.link("/targets")))
        )  # fmt: skip
    if files:
        tables.append(
            _table(frame, "journals", "Journals", ("File", "Bytes read", "Read (UTC)"),
                   ((r["path"], number(r["position"]), when(r["seen"])) for r in files), f"The newest {MAX_ROWS}")
        )  # fmt: skip
    tables.append(_versions(frame, rows))
    heading = f"Data quality: {counted(len(silent), 'node')} not seen for a day"
    return frame.page("sections.html", heading if silent else "Data quality", tables=tables, sub=SUBTITLE)


def _versions(frame: Frame, rows: Any) -> PageTable:
    """How many nodes state facts, and how many heartbeats: what the correlator can use of them."""
    counts: Mapping[str, Any] = rows(
        f"""SELECT (SELECT count(DISTINCT node) FROM watched_days WHERE {IN_WINDOW}) AS beats,
        (SELECT count(DISTINCT node) FROM watched_days WHERE {IN_WINDOW} AND busy_beats > 0) AS busy,
        (SELECT count(DISTINCT node) FROM facts WHERE time < $end) AS facts,
        (SELECT count(*) FROM incidents WHERE time >= $start AND time < $end AND job IS NULL AND source = 'job') AS no_job,
        (SELECT count(*) FROM incidents WHERE time >= $start AND time < $end) AS incidents""",
        **frame.span,
    )[0]  # fmt: skip
    counted_rows = (
        ("Nodes with heartbeats", counts["beats"]), ("Nodes that measure GPU-busy hours", counts["busy"]),
        ("Nodes with facts", counts["facts"]), ("Incidents, with consequences", counts["incidents"]),
        ("Incidents in job logs without a known job", counts["no_job"]),
    )  # fmt: skip
    return _table(
        frame,
        "basis",
        "What the numbers are based on",
        ("What", "Count"),
        ((name, number(n)) for name, n in counted_rows),
        "",
    )


def _table(
    frame: Frame, key: str, title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], note: str, empty: str = "None.",
    more: Markup | str = "",
) -> PageTable:  # fmt: skip
    return frame.table(key, title, heads, rows, note=note, empty=empty, more=more)
