"""The endpoint `/api/v1/incidents`: recent incidents from the node's journal as JSON, the latest first.

Query: `limit`, `since`, `cause`, `signature`, `job`, and `before` (the previous page's `next`).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from exporter.core.diagnosis.records import line, without_secrets
from exporter.core.text.phrases import printable
from exporter.store.latest_incidents import Before, Page, latest_incidents
from exporter.web.interface import NodeView
from exporter.web.readers import Readers

DEFAULT_INCIDENTS, MAX_INCIDENTS = 100, 1000
MAX_READERS = 2  # requests that read the journal at a time: each takes a thread and up to 50 ms of the processor
CLOCK_SECONDS = 3600.0  # how far a clock may have been set back between two records
_PARAMETERS = ("before", "cause", "job", "limit", "signature", "since")

# What everyone may read of an incident: nothing that a job printed.
PUBLIC = frozenset({
    "kind", "id", "time", "time_source", "node", "signature", "root_cause", "severity", "vendor", "layer", "source",
    "lines", "last_time", "gpu", "role", "caused_by", "verdict", "domain", "restart", "remediation", "references",
    "recorded_time", "late",
})  # fmt: skip


def incidents(view: NodeView, readers: Readers) -> Callable[[Request], Awaitable[Response]]:
    limiter = asyncio.Semaphore(MAX_READERS)

    async def answer(request: Request) -> Response:
        try:
            ask = _question(request.query_params)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        async with limiter:
            try:
                page = await asyncio.to_thread(ask, view)
            except OSError as error:
                return PlainTextResponse(f"the journal cannot be read: {error.strerror}\n", 503)
            shown = readers.may_read(request.scope)
            return Response(await asyncio.to_thread(_json, view, page, shown), media_type="application/json")

    return answer


def visible(incident: Mapping[str, Any], *, with_lines: bool) -> dict[str, Any]:
    """What a reader may see of an incident. Secrets are hidden from everyone, also those in a journal that keeps them."""
    if with_lines:
        return without_secrets(incident)
    return {key: value for key, value in incident.items() if key in PUBLIC}


def cause_of(incident: Mapping[str, Any]) -> str:
    """The root cause of an incident; its signature if the cause is unknown."""
    cause = incident.get("root_cause")
    return str(cause if cause not in (None, "", "unknown") else incident.get("signature"))


def _json(view: NodeView, page: Page, with_lines: bool) -> str:
    ids = {str(incident.get(key)) for incident in page.incidents for key in ("signature", "root_cause")}
    return line(
        {
            "node": view.overview().node,
            "lines_shown": with_lines,
            "incidents": [visible(incident, with_lines=with_lines) for incident in page.incidents],
            "titles": {name: view.title(name) for name in sorted(ids)},
            "next": page.next and str(page.next),
        }
    )


def _question(given: QueryParams) -> Callable[[NodeView], Page]:
    """What a query asks, as a function. Raises ValueError, for people."""
    if unknown := sorted(set(given) - set(_PARAMETERS)):
        raise ValueError(f"{printable(unknown[0])[:80]}: unknown parameter; use {', '.join(_PARAMETERS)}")
    count = _count(given.get("limit", str(DEFAULT_INCIDENTS)))
    since = _time(given["since"]) if "since" in given else -math.inf
    try:
        before = Before.parse(given["before"]) if "before" in given else None
    except ValueError as error:
        raise ValueError(f"before: {error}") from None

    def is_wanted(incident: Mapping[str, Any]) -> bool:
        job = incident.get("job")
        return (
            given.get("cause", cause_of(incident)) == cause_of(incident)
            and given.get("signature", incident.get("signature")) == incident.get("signature")
            and ("job" not in given or (isinstance(job, dict) and job.get("id") == given["job"]))
            and _seconds(incident.get("time"), math.inf) >= since
        )

    def is_too_old(incident: Mapping[str, Any]) -> bool:
        return _seconds(incident.get("recorded_time"), math.inf) < since - CLOCK_SECONDS

    return lambda view: latest_incidents(
        view.journal_folder, count, before=before, is_wanted=is_wanted, is_too_old=is_too_old
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= MAX_INCIDENTS):
        raise ValueError(f"limit: not a number from 1 to {MAX_INCIDENTS}")
    return int(text)


def _time(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = _seconds(text, math.nan)
    if not math.isfinite(seconds):
        raise ValueError("since: not a time; use RFC 3339, such as 2026-11-20T14:00:00Z, or Unix seconds")
    return seconds


def _seconds(text: object, otherwise: float) -> float:
    """Unix seconds of an RFC 3339 time."""
    try:
        read = datetime.fromisoformat(str(text))
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return otherwise
