"""Before and around every answer: who may ask, and the headers that each answer carries. An ASGI application."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exporter.web.active_config import ActiveConfig
from exporter.web.page import POLICY
from exporter.web.users import Answer, Authenticator

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",  # no page may embed the metrics to measure them
}
CACHE_CONTROL = "no-store"  # each answer is of this moment, and perhaps not for the next reader; or as it says itself
_REFUSED = {
    Answer.NO: (401, "name and password, please\n", {"WWW-Authenticate": 'Basic realm="gpufault", charset="UTF-8"'}),
    Answer.LATER: (429, "too many passwords are being checked for your address; try again\n", {"Retry-After": "1"}),
}


class Guard:
    """Lets through to `app` whoever may ask under the settings in force. Lives in one event loop."""

    def __init__(self, app: ASGIApp, in_force: ActiveConfig) -> None:
        self._app = app
        self._in_force = in_force
        self._door = Authenticator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._in_force.settings
        headers = HEADERS | settings.config.headers

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                kept = answered.get("Cache-Control", CACHE_CONTROL)
                answered.update(headers | {"Cache-Control": kept})
            await send(message)

        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy in front may believe the other one (RFC 9112 §6.1) and see no second request behind this one.
            refused = PlainTextResponse("a request has one length\n", 400, {"Connection": "close"})
            await refused(scope, receive, send_with_headers)
            return
        if settings.users:
            client = scope["client"][0] if scope["client"] else ""
            answer = await self._door.ask(settings.users, client, _authorization(scope))
            if answer is not Answer.YES:
                status, text, more = _REFUSED[answer]
                await PlainTextResponse(text, status, more)(scope, receive, send_with_headers)
                return
        await self._app(scope, receive, send_with_headers)


def _authorization(scope: Scope) -> str | None:
    """The one Authorization header; with two, a proxy in front may have looked at the other one."""
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
    return found[0] if len(found) == 1 else None
