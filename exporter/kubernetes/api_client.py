"""The two requests that the reporter sends to the Kubernetes API server: patch a node's status, write an event.

A patch without content changes nothing and returns the node. `exporter.fleet.pull.pods` asks for pods.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from exporter.config.outputs import TlsSettings
from exporter.net.credentials import ContextCache, read_secret
from exporter.net.http import RequestFailed, Response, request
from exporter.net.url import parse_url

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MAX_NODE_BYTES = 4 << 20  # a node lists its images
FIELD_MANAGER = "fieldManager=gpufault"
TIMEOUT_SECONDS = 10.0

# `gone`: the object does not exist. `exists`: it exists already. `conflict`: somebody else wrote at the same time.
Outcome = Literal[
    "gone", "exists", "conflict", "forbidden", "unauthorized", "throttled", "invalid", "server", "connection"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class ApiFailed(Exception):
    """A request without effect. retry_after: seconds that the server asks to wait."""

    def __init__(self, outcome: Outcome, message: str, retry_after: float = 0.0) -> None:
        self.outcome: Outcome = outcome
        self.retry_after = retry_after
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """The API server. The token's file is read for each request, because the kubelet replaces it within the hour."""

    base: str
    token_file: Path | None
    contexts: ContextCache

    @classmethod
    def at(cls, base: str, token_file: Path | None, ca_file: Path | None) -> ApiServer:
        return cls(base=base.rstrip("/"), token_file=token_file, contexts=ContextCache(TlsSettings(ca_file=ca_file)))

    def patch_node_status(self, node: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a strategic merge patch to a node's status; the node as it is then. Raises ApiFailed."""
        return self._send("PATCH", f"/api/v1/nodes/{node}/status", change)

    def create_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        """Raises ApiFailed; `exists` if there is one of that name."""
        self._send("POST", f"/api/v1/namespaces/{namespace}/events", event)

    def patch_event(self, namespace: str, name: str, change: Mapping[str, Any]) -> None:
        """Raises ApiFailed; `gone` if it has expired."""
        self._send("PATCH", f"/api/v1/namespaces/{namespace}/events/{name}", change)

    def _send(self, method: Literal["POST", "PATCH"], path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {
            "Content-Type": STRATEGIC_MERGE if method == "PATCH" else "application/json",
            "Accept": "application/json",
        }
        try:
            if self.token_file:
                headers["Authorization"] = f"Bearer {read_secret(self.token_file).strip()}"
            response = request(
                method, parse_url(f"{self.base}{path}?{FIELD_MANAGER}"), headers, json.dumps(body).encode(),
                context=self.contexts.get(), seconds=TIMEOUT_SECONDS, max_body=MAX_NODE_BYTES,
            )  # fmt: skip
        except RequestFailed as error:
            raise ApiFailed("connection", str(error)) from None
        except (OSError, ValueError) as error:
            raise ApiFailed("connection", f"a file cannot be read: {error}") from None
        if not 200 <= response.status < 300:
            raise _failure(response)
        try:
            answer: dict[str, Any] = json.loads(response.body)
            answer["metadata"]["name"]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ApiFailed("server", "the answer is not an object of Kubernetes") from None
        return answer


def _failure(response: Response) -> ApiFailed:
    reason, message = _status(response.body)
    text = f"{response.status} {message}".strip()
    match response.status:
        case 401:
            return ApiFailed("unauthorized", text)
        case 403:
            return ApiFailed("forbidden", text)
        case 404:
            return ApiFailed("gone", text)
        case 409:
            return ApiFailed("exists" if reason == "AlreadyExists" else "conflict", text)
        case 429:
            return ApiFailed("throttled", text, _seconds(response.headers.get("retry-after")))
        case status if status >= 500:
            return ApiFailed("server", text, _seconds(response.headers.get("retry-after")))
        case _:
            return ApiFailed("invalid", text)


def _status(body: bytes) -> tuple[str, str]:
    """Reason and message of a `Status` object."""
    try:
        status = json.loads(body)
        return str(status.get("reason") or ""), str(status.get("message") or "")[:300]
    except (ValueError, AttributeError, RecursionError):
        return "", ""


def _seconds(header: str | None) -> float:
    return min(float(header), 300.0) if header and header.isascii() and header.isdecimal() else 0.0
