"""`/api/v1/node-check`: what an operator has to fix on this node, as JSON for programs that start and drain jobs.

`?since=` Unix seconds, since the boot if it is missing; `&job=` an id, and again for another name of the job.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from exporter.core.diagnosis.node_faults import fault_json, select_faults
from exporter.core.diagnosis.records import line, rfc3339
from exporter.core.text.redact import redact
from exporter.web.interface import WebView


def node_check(view: WebView) -> Callable[[Request], Awaitable[Response]]:
    """What answers there."""

    async def answer(request: Request) -> Response:
        known = view.node_faults()
        asked = request.query_params.get("since")
        try:
            since = None if asked is None else float(asked)
            begin = known.now.booted if since is None else since
            told = rfc3339(begin) if math.isfinite(begin) else ""
        except (ValueError, OverflowError, OSError):
            told = ""
        if not told:
            return PlainTextResponse("since: not a time; use Unix seconds such as 1767225600\n", 400)
        faults = select_faults(known.faults, known.now, since=since, jobs=request.query_params.getlist("job"))
        return Response(
            line(
                {
                    "node": known.node,
                    "since": told,
                    "blind": [redact(reason).encode(errors="backslashreplace").decode() for reason in known.blind],
                    "faults": [fault_json(fault, known.now) for fault in faults],
                }
            ),
            media_type="application/json",
        )

    return answer
