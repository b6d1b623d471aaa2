"""The endpoints of node faults: `GET /api/v1/faults` lists them, `POST /api/v1/faults/clear` clears them.

`?state=open` or `cleared` lists only those. `blind` says why open ones may be missing. Clearing is for administrators, and
for root over the control socket: a job on the node could reach the daemon over loopback.
"""

from __future__ import annotations

import asyncio
import json

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from exporter.core.diagnosis.clear_request import ClearRequest, InvalidRequest
from exporter.core.diagnosis.node_faults import fault_json, select_faults
from exporter.core.diagnosis.records import line
from exporter.core.text.redact import redact
from exporter.web.interface import NodeView
from exporter.web.readers import HOW_TO_CHANGE, client_of
from exporter.web.requests import is_from_web_page

MAX_BODY = 8192  # bytes
STATES = ("open", "cleared")


def fault_routes(view: NodeView) -> list[Route]:
    async def list_faults(request: Request) -> Response:
        state = request.query_params.get("state")
        if state not in (None, *STATES):
            return JSONResponse({"error": f"state: use {' or '.join(STATES)}"}, 400)
        node = view.node_faults()
        faults = [*(node.faults if state != "cleared" else ()), *(node.cleared if state != "open" else ())]
        found = select_faults(faults, node.now, since=None)
        blind = [redact(reason).encode(errors="backslashreplace").decode() for reason in node.blind]
        answer = {"node": node.node, "blind": blind, "faults": [fault_json(fault, node.now) for fault in found]}
        return Response(line(answer), media_type="application/json")

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

    return [Route("/api/v1/faults", list_faults), Route("/api/v1/faults/clear", clear, methods=["POST"])]
