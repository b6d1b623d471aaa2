"""The endpoint `/api/v1/node-check`: the node's open faults as JSON, for schedulers that start jobs and drain nodes.

Query: `since=` in Unix seconds (default: the boot); `job=`, a job's id, may be repeated with other names of the job.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from exporter.core.diagnosis.node_faults import fault_json, select_faults
from exporter.core.diagnosis.records import line, rfc3339
from exporter.core.text.redact import redact
from exporter.web.interface import NodeView


def node_check(view: NodeView) -> Callable[[Request], Awaitable[Response]]:
    """The request handler."""

    async def answer(request: Request) -> Response:
        node = view.node_faults()
        parameter = request.query_params.get("since")
        try:
            since = None if parameter is None else float(parameter)
            start = node.now.booted if since is None else since
            start_text = rfc3339(start) if math.isfinite(start) else ""
        except (ValueError, OverflowError, OSError):
            start_text = ""
        if not start_text:
            return PlainTextResponse("since: not a time; use Unix seconds such as 1767225600\n", 400)
        faults = select_faults(node.faults, node.now, since=since, jobs=request.query_params.getlist("job"))
        return Response(
            line(
                {
                    "node": node.node,
                    "since": start_text,
                    "blind": [redact(reason).encode(errors="backslashreplace").decode() for reason in node.blind],
                    "faults": [fault_json(fault, node.now) for fault in faults],
                }
            ),
            media_type="application/json",
        )

    return answer
