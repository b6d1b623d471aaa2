"""ASGI middleware that authenticates each request and adds security headers to each response."""

from asyncio import BaseTransport

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exporter.web.active_config import ActiveConfig, Settings
from exporter.web.control_socket import trusted_peer
from exporter.web.page import CONTENT_SECURITY_POLICY
from exporter.web.readers import CLIENT, NOBODY, TRANSPORT, Client
from exporter.web.tls import alternative_names
from exporter.web.users import Authenticator, Decision, parse_credentials

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",  # no page may embed the metrics to measure them
}
_POLICY = "Content-Security-Policy"  # a page with a style sheet of its own sets one
CACHE_CONTROL = "no-store"  # unless the response sets its own: it is out of date soon, and may not be for every reader
_REFUSED = {
    Decision.DENIED: (
        401,
        "user name or password missing or wrong\n",
        {"WWW-Authenticate": 'Basic realm="gpufault", charset="UTF-8"'},
    ),
    Decision.BUSY: (429, "too many passwords are being checked for your address; try again\n", {"Retry-After": "1"}),
}


class Guard:
    """Passes allowed requests to `app`, according to the active settings. For use in one event loop."""

    def __init__(self, app: ASGIApp, active_config: ActiveConfig, node: str = "") -> None:
        """node: whose tokens are accepted."""
        self._app = app
        self._node = node
        self._active_config = active_config
        self._authenticator = Authenticator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._active_config.settings

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                cache_control = response_headers.get("Cache-Control", CACHE_CONTROL)
                own = {_POLICY: policy} if (policy := response_headers.get(_POLICY)) else {}
                response_headers.update(HEADERS | own | settings.headers | {"Cache-Control": cache_control})
            await send(message)

        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy may use the other header (RFC 9112 §6.1) and so miss a second request after this one.
            response = PlainTextResponse(
                "both Content-Length and Transfer-Encoding; send one\n", 400, {"Connection": "close"}
            )
            await response(scope, receive, send_with_headers)
            return
        client = await self._client(scope, settings)
        if isinstance(client, Decision):
            status, text, extra_headers = _REFUSED[client]
            await PlainTextResponse(text, status, extra_headers)(scope, receive, send_with_headers)
            return
        scope[CLIENT] = client
        await self._app(scope, receive, send_with_headers)

    def _has_token(self, settings: Settings, transport: BaseTransport, authorization: str | None) -> bool:
        """Whether a client shows a token for this node, or for the address that it has connected to."""
        from exporter.net.tokens import is_valid

        scheme, _, token = (authorization or "").partition(" ")
        host = transport.get_extra_info("sockname")
        address = host[0] if isinstance(host, tuple) else ""
        return scheme.lower() == "bearer" and is_valid(token.strip(), settings.token_keys, self._node, address)

    async def _client(self, scope: Scope, settings: Settings) -> Client | Decision:
        """Who sends a request; a decision against it if users are configured and it is none of them."""
        transport = scope.get("state", {}).get(TRANSPORT)
        if peer := trusted_peer(transport):
            return peer
        authorization = _authorization(scope)
        if settings.token_keys and transport and self._has_token(settings, transport, authorization):
            return Client("a token", may_read=True)
        if settings.users:
            address = scope["client"][0] if scope["client"] else ""
            decision = await self._authenticator.decide(settings.users, address, authorization)
            credentials = parse_credentials(authorization)
            if decision is not Decision.ALLOWED or credentials is None:
                return decision
            return Client(credentials[0], may_read=True, may_change=settings.is_administrator(credentials[0]))
        certificate = transport.get_extra_info("peercert") if transport else None
        if not certificate:
            return NOBODY
        # TLS has verified it: others end the handshake.
        names = sorted(alternative_names(certificate))
        administrator = any(map(settings.is_administrator, names))
        return Client(f"certificate of {', '.join(names)[:200]}", may_read=True, may_change=administrator)


def _authorization(scope: Scope) -> str | None:
    """The Authorization header; None if there are several, since a proxy may have checked another one."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
    return values[0] if len(values) == 1 else None
