"""Who a client is, and what it may do. The only place with this rule.

Everyone whom `exporter.web.guard` lets in may read titles, causes, counts and faults. What jobs printed, and the journal,
are for clients that have proven who they are: users, certificates, tokens, and root or the daemon's own user over the
control socket. Being on this host proves nothing: other users' jobs run here too. On a trusted network
(`--web.readers=everyone`) every client may read all. Only root, the daemon's user and administrators change state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

AUTHENTICATED, EVERYONE = "authenticated", "everyone"  # values of --web.readers
CLIENT = "gpufault.client"  # in a request's scope, set by the guard
TRANSPORT = "gpufault.transport"  # in the state of a request's scope: the transport of its connection
HOW_TO_CHANGE = (
    "only administrators of the web configuration (--web.config.file), and root over the control socket, may do this"
)


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request. may_read: what jobs printed, and the journal; may_change: reload, and clear faults."""

    name: str = ""
    may_read: bool = False
    may_change: bool = False


NOBODY = Client()


@dataclass(frozen=True, slots=True)
class Readers:
    """Who may read. everyone: the network is trusted."""

    everyone: bool = False

    def may_read(self, scope: Mapping[str, Any]) -> bool:
        """Whether the client of a request may read what jobs printed, and the journal."""
        return self.everyone or client_of(scope).may_read


AUTHENTICATED_ONLY = Readers()


def client_of(scope: Mapping[str, Any]) -> Client:
    """The client of a request, as the guard has found it."""
    client: Client = scope.get(CLIENT, NOBODY)
    return client


def is_from_web_page(request: Request) -> bool:
    """Whether a browser sends the request on behalf of a page. Browsers send Origin with each POST.

    None of our pages changes anything. So our own origin is refused too: it may be a foreign name that resolves to this
    host (DNS rebinding).
    """
    return "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none"
