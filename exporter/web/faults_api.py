"""The endpoints of node faults.

`GET /api/v1/faults` lists them (`?state=open` or `cleared`), `POST /api/v1/faults/clear` clears them. Clearing is for
administrators, and for root over the control socket: a job on the node could reach the daemon over loopback.
`GET /api/v1/node-check` lists the open ones for schedulers that start jobs and drain nodes: `since=` in Unix seconds (default:
the boot); `job=`, a job's id, may be repeated with other names of the job. `blind` says why open ones may be missing.
"""

import asyncio
import json
import math
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from exporter.core.diagnosis.clear_request import ClearRequest, InvalidRequest
from exporter.core.diagnosis.node_faults import Fault, fault_json, select_faults
from exporter.core.diagnosis.records import line, rfc3339
from exporter.core.text.redact import redact
from exporter.web.interface import NodeFaults, NodeView
from exporter.web.readers import HOW_TO_CHANGE, client_of, is_from_web_page

MAX_BODY = 8192  # bytes
STATES = ("open", "cleared")


def fault_routes(view: NodeView) -> list[Route]:
    async def list_faults(request: Request) -> Response:
        state = request.query_params.get("state")
        if state not in (None, *STATES):
            return JSONResponse({"error": f"state: use {' or '.join(STATES)}"}, 400)
        node = view.node_faults()
        faults = [*(node.faults if state != "cleared" else ()), *(node.cleared if state != "open" else ())]
        return faults_answer(node, select_faults(faults, node.now, since=None))

    async def clear(request: Request) -> Response:
        if is_from_web_page(request):
            return JSONResponse({"error": "web pages cannot clear faults; use `gpufault clear`"}, 403)
        client = client_of(request.scope)
        if not client.may_change:
            return JSONResponse({"error": f"{HOW_TO_CHANGE}; use `gpufault clear` as root on the node"}, 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY:
                return JSONResponse({"error": f"a request has at most {MAX_BODY} bytes"}, 413)
        try:
            asked = ClearRequest.from_json(json.loads(body), client.name)
            cleared = await asyncio.to_thread(view.clear_faults, asked)
        except (ValueError, RecursionError):
            return JSONResponse({"error": "the body is not JSON"}, 400)
        except InvalidRequest as error:
            return JSONResponse({"error": str(error)}, 422)
        except TimeoutError:
            return JSONResponse({"error": "the main loop did not answer in time"}, 503)
        return Response(line({"cleared": cleared}), media_type="application/json")

    async def node_check(request: Request) -> Response:
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
        return faults_answer(node, faults, since=start_text)

    return [
        Route("/api/v1/faults", list_faults),
        Route("/api/v1/faults/clear", clear, methods=["POST"]),
        Route("/api/v1/node-check", node_check),
    ]


def faults_answer(node: NodeFaults, faults: Sequence[Fault], **more: str) -> Response:
    blind = [redact(reason).encode(errors="backslashreplace").decode() for reason in node.blind]
    faults_json = [fault_json(fault, node.now) for fault in faults]
    return Response(
        line({"node": node.node, **more, "blind": blind, "faults": faults_json}), media_type="application/json"
    )
