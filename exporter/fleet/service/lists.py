"""The lists that pages and API share: one declaration gives the query, the columns, the filters and the exports."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.core.model import ACTION_WORDS
from exporter.fleet.history import watched
from exporter.fleet.history.schema import CAUSE, IS_ROOT, NODES, ROLE, fact_pointer
from exporter.fleet.history.store import Store
from exporter.fleet.review import event_timeline
from exporter.fleet.review.event_timeline import CLEARED_BY, OUTCOMES
from exporter.fleet.review.queries import OLDEST, REACH

MAX_ROWS = 1000  # of one answer
_IN = "time >= $start AND time < $end"
_REACHES = f"{OLDEST} <= $start - {1 - REACH} * ($end - $start)"  # over the window before


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`kind` says how a page shows it: text, number, time, node, job, incident, cause, verdict, change."""

    key: str
    head: str
    kind: str = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDefinition:
    """A query with the parameters $start and $end, its columns, and those that may be filtered by (exactly)."""

    title: str
    note: str
    sql: str
    columns: tuple[Column, ...]
    filters: tuple[str, ...]
    sort: str
    empty: str


def _words(column: str, words: Mapping[Any, str], otherwise: str) -> str:
    """An SQL expression: what the values of a column are called."""
    cases = " ".join(f"WHEN '{key}' THEN '{text}'" for key, text in words.items())
    return f"CASE {column} {cases} ELSE '{otherwise}' END"


def _columns(*columns: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(Column(key=key, head=head, kind=kind[0] if kind else "text") for key, head, *kind in columns)


LISTS: Mapping[str, ListDefinition] = {
    "incidents": ListDefinition(
        title="Incidents",
        note="Crashes in jobs' and kernels' logs; a consequence is a crash that another one caused",
        sql=f"""SELECT id, time, {CAUSE} AS cause, signature, root_cause, verdict, domain, {ROLE} AS role, node, gpu,
            restart, job, job_user AS user, caused_by, text FROM incidents WHERE {_IN}""",
        columns=_columns(
            ("time", "Time (UTC)", "time"), ("id", "Incident", "incident"), ("cause", "Cause", "cause"),
            ("verdict", "Whose", "verdict"), ("domain", "Domain"), ("restart", "Restart"), ("role", "Role"),
            ("node", "Node", "node"), ("gpu", "GPU"), ("job", "Job", "job"), ("user", "User"), ("text", "Line"),
        ),
        filters=("cause", "signature", "root_cause", "verdict", "domain", "restart", "role", "node", "gpu", "job", "user"),
        sort="-time",
        empty="no incidents in this window",
    ),
    "causes": ListDefinition(
        title="Causes",
        note="Root incidents by cause, and the change on the window before, if the records reach back over it",
        sql=f"""SELECT *, incidents / nullif(before, 0) - 1 AS change FROM (
            SELECT cause, mode(verdict) FILTER ({_IN}) AS verdict, mode(domain) FILTER ({_IN}) AS domain,
            count(*) FILTER ({_IN}) AS incidents,
            CASE WHEN {_REACHES} THEN count(*) FILTER (time >= 2 * $start - $end AND time < $start) END AS before,
            count(DISTINCT node) FILTER ({_IN}) AS nodes, count(DISTINCT job) FILTER ({_IN}) AS jobs,
            count(DISTINCT job_user) FILTER ({_IN}) AS users, min(time) AS first_seen,
            max(time) FILTER ({_IN}) AS last_seen, first_seen >= $start AS new
            FROM (SELECT *, {CAUSE} AS cause FROM incidents WHERE {IS_ROOT} AND time < $end) GROUP BY cause
            HAVING incidents > 0)""",
        columns=_columns(
            ("cause", "Cause", "cause"), ("verdict", "Whose", "verdict"), ("domain", "Domain"),
            ("incidents", "Incidents", "number"), ("before", "Before", "number"), ("change", "Change", "change"),
            ("nodes", "Nodes", "number"), ("jobs", "Jobs", "number"), ("users", "Users", "number"),
            ("first_seen", "First seen", "time"), ("last_seen", "Last seen", "time"),
        ),
        filters=("cause", "verdict", "domain"),
        sort="-incidents",
        empty="no root incidents in this window",
    ),
    "nodes": ListDefinition(
        title="Nodes",
        note="Each node of the window: hours watched, root incidents, and when it was last seen",
        sql=f"""SELECT node, coalesce(incidents, 0) AS incidents, coalesce(causes, 0) AS causes, last_incident, hours,
            seen AS last_seen, facts ->> 'gpu_model' AS gpu_model, facts ->> 'rack' AS rack,
            facts ->> 'driver_version' AS driver_version FROM (
                SELECT node, sum(hours) AS hours, max(seen) AS seen FROM (
                    SELECT node, hours * {watched.SHARE} AS hours, least(last, $end) AS seen
                    FROM watched_days WHERE {watched.IN_WINDOW}
                    UNION ALL SELECT node, 0, time FROM incidents WHERE {_IN}
                    UNION ALL SELECT node, 0, time FROM facts WHERE time < $end)
                WHERE node IN ({NODES}) GROUP BY node)
            LEFT JOIN (SELECT node, count(*) AS incidents, count(DISTINCT {CAUSE}) AS causes, max(time) AS last_incident
                FROM incidents WHERE {_IN} AND {IS_ROOT} GROUP BY node) USING (node)
            LEFT JOIN (SELECT node, max_by(facts, time) AS facts FROM facts WHERE time < $end GROUP BY node) USING (node)""",
        columns=_columns(
            ("node", "Node", "node"), ("incidents", "Root incidents", "number"), ("causes", "Causes", "number"),
            ("last_incident", "Last incident", "time"), ("hours", "Hours watched", "number"),
            ("last_seen", "Last seen", "time"), ("gpu_model", "GPU"), ("rack", "Rack"), ("driver_version", "Driver"),
        ),
        filters=("node", "gpu_model", "rack", "driver_version"),
        sort="-incidents",
        empty="no node has written a record in this window",
    ),
    "jobs": ListDefinition(
        title="Jobs that crashed",
        note="Each with the cause of its first root incident",
        sql=f"""SELECT job, max(job_user) AS user, max(account) AS account, count(*) AS incidents,
            count(DISTINCT node) AS nodes, min_by({CAUSE}, time) AS cause, min_by(verdict, time) AS verdict,
            min(time) AS first_seen, max(time) AS last_seen
            FROM incidents WHERE {_IN} AND {IS_ROOT} AND job IS NOT NULL GROUP BY job""",
        columns=_columns(
            ("job", "Job", "job"), ("user", "User"), ("account", "Account"), ("cause", "Cause", "cause"),
            ("verdict", "Whose", "verdict"), ("incidents", "Root incidents", "number"), ("nodes", "Nodes", "number"),
            ("first_seen", "First", "time"), ("last_seen", "Last", "time"),
        ),
        filters=("job", "user", "account", "cause", "verdict"),
        sort="-last_seen",
        empty="no crashed job in this window",
    ),
    "unknowns": ListDefinition(
        title="Unrecognised crashes",
        note="No signature matches them; similar lines are one row. Begin a signature with `gpufault signatures new`",
        sql=f"""SELECT coalesce(record ->> '$.captures.template', text, 'without a line') AS template,
            count(*) AS incidents, count(DISTINCT node) AS nodes, count(DISTINCT job) AS jobs, min(time) AS first_seen,
            max(time) AS last_seen, max_by(id, time) AS id FROM incidents
            WHERE {_IN} AND signature = 'unrecognised_crash' AND coalesce(role, '') != 'context'
            GROUP BY template, record ->> '$.captures.kind', record ->> '$.captures.type'""",
        columns=_columns(
            ("template", "Line"), ("incidents", "Crashes", "number"), ("nodes", "Nodes", "number"),
            ("jobs", "Jobs", "number"), ("first_seen", "First", "time"), ("last_seen", "Last", "time"),
            ("id", "Latest", "incident"),
        ),
        filters=("template",),
        sort="-incidents",
        empty="every crash in this window matches a signature",
    ),
    "targets": ListDefinition(
        title="Pulled nodes",
        note="How pulling each node's journal goes; always all records, not only those of the window",
        sql="""SELECT node, address, state, what, pulled, failing_since, behind, bytes, records, refused, lost_segments
            FROM targets WHERE $start <= $end""",
        columns=_columns(
            ("node", "Node"), ("state", "State"), ("what", "What"), ("pulled", "Pulled (UTC)", "time"),
            ("failing_since", "Failing since", "time"), ("behind", "Bytes waiting", "number"), ("bytes", "Bytes", "number"),
            ("records", "Records", "number"), ("refused", "Refused", "number"),
            ("lost_segments", "Segments lost", "number"), ("address", "Address"),
        ),
        filters=("state", "node"),
        sort="-failing_since",
        empty="no nodes are pulled",
    ),
    "timeline": ListDefinition(
        title="Timeline",
        note="Incidents, failed jobs, node faults, reboots, changed facts and silence, in order",
        sql=f"""SELECT time, node, job, 'incident' AS kind, id, {CAUSE} AS cause, role, coalesce(text, '') AS what,
                NULL AS facts, NULL AS before FROM incidents WHERE {_IN}
            UNION ALL SELECT time, node, job, 'job_end', NULL, NULL, NULL,
                {_words("outcome", OUTCOMES, OUTCOMES["no_line"])}, NULL, NULL FROM job_ends WHERE {_IN}
            UNION ALL SELECT started, node, job, 'job_start', NULL, NULL, NULL, 'started; it failed later', NULL, NULL
                FROM job_ends WHERE started >= $start AND started < $end
            UNION ALL SELECT time, node, job, 'node_check', NULL, {CAUSE}, NULL,
                concat(CASE state WHEN 'open' THEN 'fails: ' || {_words("action", ACTION_WORDS, "see its cause")}
                    ELSE 'fault cleared by ' || {_words("cleared_by", CLEARED_BY, "something else")} END, ', GPU ' || gpu),
                NULL, NULL FROM faults WHERE {_IN}
            UNION ALL SELECT time, node, NULL, 'boot', NULL, NULL, NULL, 'the node booted', NULL, NULL FROM boots WHERE {_IN}
            UNION ALL SELECT * FROM (SELECT time, node, NULL, 'facts', NULL, NULL, NULL, '', facts,
                lag(facts) OVER (PARTITION BY node ORDER BY time) AS before FROM facts) WHERE {_IN} AND before IS NOT NULL
            UNION ALL SELECT time, node, NULL, 'silence', NULL, NULL, NULL,
                'not seen for ' || round((until - since) / 3600, 1) || ' hours', NULL, NULL FROM (
                SELECT node, s.since AS since, s.until AS until, s.until AS time FROM (
                    SELECT node, unnest(silences) AS s FROM watched_days WHERE {watched.IN_WINDOW})) WHERE {_IN}""",
        columns=_columns(
            ("time", "Time (UTC)", "time"), ("kind", "Kind"), ("node", "Node", "node"), ("job", "Job", "job"),
            ("cause", "Cause", "cause"), ("role", "Role"), ("what", "What"), ("id", "Incident", "incident"),
        ),
        filters=("node", "job", "kind", "cause"),
        sort="-time",
        empty="nothing happened in this window",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks of a list: window (Unix seconds), filters, facts that nodes must have, order and page."""

    start: float
    end: float
    filters: Mapping[str, str]
    facts: Mapping[str, str]
    sort: str
    offset: int = 0
    limit: int = 100


def rows_of(store: Store, name: str, asked: Asked) -> tuple[list[dict[str, Any]], int]:
    """The rows asked for, and how many there are without paging. `asked.sort` is one of the columns, `-` for descending."""
    listing = LISTS[name]
    parameters: dict[str, Any] = {"start": asked.start, "end": asked.end}
    conditions = ["true"]
    for at, (key, value) in enumerate(sorted(asked.filters.items())):
        assert key in listing.filters  # the request was validated
        conditions.append(f"{key} = $filter{at}")
        parameters[f"filter{at}"] = value
    for at, (fact, value) in enumerate(sorted(asked.facts.items())):
        conditions.append(
            "node IN (SELECT node FROM (SELECT node, max_by(facts, time) AS now FROM facts WHERE time < $end GROUP BY node)"
            f" WHERE json_extract_string(now, $fact{at}) = $value{at})"
        )
        parameters |= {f"fact{at}": fact_pointer(fact), f"value{at}": value}
    sort_key = asked.sort.removeprefix("-")
    assert sort_key in {column.key for column in listing.columns}
    order = f"{sort_key} {'DESC' if asked.sort.startswith('-') else 'ASC'} NULLS LAST"
    # Ties are ordered, too: pages must not overlap.
    order += "".join(f", {column.key}" for column in listing.columns if column.key != sort_key)
    query = f"SELECT *, count(*) OVER () AS total_ FROM ({listing.sql}) WHERE {' AND '.join(conditions)}"
    rows = store.rows(
        f"SELECT * FROM ({query}) ORDER BY {order} LIMIT {asked.limit} OFFSET {asked.offset}",
        parameters,
    )
    total = rows[0]["total_"] if rows else 0
    for row in rows:
        del row["total_"]
        if "facts" in row:
            row["what"] = row["what"] or changed_facts(row.pop("before"), row["facts"])
            row.pop("before", None)
            del row["facts"]
    return rows, total


def changed_facts(before: str | None, after: str | None) -> str:
    """What changed from one set of facts to the next, as `name old → new`."""
    changes = event_timeline.changed_facts(facts_of(before), facts_of(after))
    return ", ".join(changes[:20]) + (f" and {len(changes) - 20} more" if len(changes) > 20 else "")


def facts_of(text: str | None) -> dict[str, str]:
    """Facts by name; values that are not text as their JSON; none where they cannot be read."""
    try:
        facts = dict(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in sorted(facts.items())
        if value not in (None, "")
    }
