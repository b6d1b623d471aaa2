"""What a Kubernetes API server does with nodes' status and events, so far as a client with few rights can tell.

It knows bearer tokens, rights by verb and resource, strategic merge of conditions, expired events, and the answers 401,
403, 404, 409, 415, 422, 429 and 500 with their `Status` objects. tests/e2e/test_node_conditions.py holds the same client
against a real one, where there is one.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Object = dict[str, Any]
Right = tuple[str, str]  # verb and resource
ENOUGH: frozenset[Right] = frozenset(
    {("patch", "nodes/status"), ("create", "events"), ("patch", "events"), ("get", "pods"), ("list", "pods")}
)
_PATH = re.compile(
    r"/api/v1(?:/namespaces/(?P<namespace>[^/?]+))?/(?P<kind>nodes|events|pods)(?:/(?P<name>[^/?]+))?(?:/(?P<sub>status))?(?:\?.*)?"
)
_MERGED_BY = {"conditions": "type"}  # lists of a node's status that a strategic merge patch merges by a key


class Refused(Exception):
    """An answer other than 2xx."""

    def __init__(self, code: int, reason: str, message: str = "", **headers: str) -> None:
        self.code, self.reason, self.message, self.headers = code, reason, message, headers
        super().__init__(reason)


class KubernetesApi:
    """A server on loopback. Set `token`, `rights` and `before` (called with verb and path; it may raise Refused)."""

    def __init__(self, *nodes: str) -> None:
        self.token = "first"
        self.rights = ENOUGH
        self.before: Callable[[str, str], None] = lambda _verb, _path: None
        self.nodes: dict[str, Object] = {name: _node(name) for name in nodes}
        self.events: dict[tuple[str, str], Object] = {}
        self.pods: dict[tuple[str, str], Object] = {}
        self.requests: Counter[Right] = Counter()
        self._version = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @staticmethod
    def node(name: str) -> Object:
        return _node(name)

    def condition(self, node: str) -> Object | None:
        """The condition GPUFaultDetected of a node."""
        found = self.nodes[node]["status"]["conditions"]
        return next((each for each in found if each["type"] == "GPUFaultDetected"), None)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Object:
        """The object that a request results in. Raises Refused."""
        found = _PATH.fullmatch(path)
        if not found:
            raise Refused(404, "NotFound", f"no such path: {path}")
        verb = {"POST": "create", "PATCH": "patch", "GET": "get" if found["name"] else "list"}[method]
        right = (verb, "/".join(filter(None, (found["kind"], found["sub"]))))
        with self._lock:
            self.requests[right] += 1
            if headers.get("Authorization") != f"Bearer {self.token}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            if right not in self.rights:
                raise Refused(403, "Forbidden", f'cannot {verb} resource "{right[1]}"')
            self.before(verb, path)
            if found["kind"] == "pods":
                return self._pods(found["namespace"], found["name"])
            wanted = "application/strategic-merge-patch+json" if verb == "patch" else "application/json"
            if headers.get("Content-Type") != wanted:
                raise Refused(415, "UnsupportedMediaType", str(headers.get("Content-Type")))
            given = json.loads(body)
            if found["kind"] == "nodes":
                return self._patch(self.nodes, found["name"], given, only="status")
            key = (found["namespace"], found["name"])
            return self._patch(self.events, key, given) if verb == "patch" else self._create(found["namespace"], given)

    @staticmethod
    def pod(namespace: str, name: str, node: str, address: str = "10.0.0.1", phase: str = "Running") -> Object:
        return {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
            "spec": {"nodeName": node},
            "status": {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]},
        }

    def _pods(self, namespace: str, name: str | None) -> Object:
        if name is None:
            return {
                "items": [pod for (where, _), pod in sorted(self.pods.items()) if where == namespace],
                "metadata": {},
            }
        if (namespace, name) not in self.pods:
            raise Refused(404, "NotFound", f'pods "{name}" not found')
        return self.pods[namespace, name]

    def _create(self, namespace: str, event: Object) -> Object:
        key = (namespace, event["metadata"]["name"])
        if key in self.events:
            raise Refused(409, "AlreadyExists", f'events "{key[1]}" already exists')
        about = event["involvedObject"]
        if (about.get("namespace") or "default") != namespace or event["metadata"].get("namespace") != namespace:
            raise Refused(422, "Invalid", "involvedObject.namespace: does not match event.namespace")
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", key[1]) or len(event["message"]) > 1024:
            raise Refused(422, "Invalid", "metadata.name or message")
        self.events[key] = self._stamped(event)
        return self.events[key]

    def _patch(self, objects: dict[Any, Object], key: Any, change: Object, only: str = "") -> Object:
        if key not in objects:
            raise Refused(404, "NotFound", f'"{key}" not found')
        now = objects[key]
        wanted = change.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, now["metadata"]["resourceVersion"]):
            raise Refused(
                409, "Conflict", "the object has been modified; please apply your changes to the latest version"
            )
        part = {name: value for name, value in change.items() if not only or name == only}
        merged = _merged(now, part)
        if merged != now:
            objects[key] = self._stamped(merged)
        return objects[key]

    def _stamped(self, value: Object) -> Object:
        self._version += 1
        return {**value, "metadata": {**value["metadata"], "resourceVersion": str(self._version)}}


def _merged(now: Object, change: Object) -> Object:
    """A strategic merge patch: objects are merged, lists replaced, but for those that are merged by a key."""
    merged = dict(now)
    for name, value in change.items():
        if isinstance(value, dict):
            merged[name] = _merged(now.get(name) or {}, value)
        elif name in _MERGED_BY:
            key = _MERGED_BY[name]
            by_key = {each[key]: each for each in now.get(name) or ()}
            by_key |= {each[key]: {**by_key.get(each[key], {}), **each} for each in value}
            merged[name] = list(by_key.values())
        else:
            merged[name] = value
    return merged


def _node(name: str) -> Object:
    ready = {
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": "2026-11-25T06:00:00Z", "lastTransitionTime": "2026-11-01T06:00:00Z",
    }  # fmt: skip
    meta = {"name": name, "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), "resourceVersion": "0"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"conditions": [ready]}}


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            try:
                code, found, headers = 200, api.answer(self.command, self.path, self.headers, body), {}
            except Refused as error:
                code, headers = error.code, error.headers
                found = {"kind": "Status", "status": "Failure", "reason": error.reason, "message": error.message}
            text = json.dumps(found).encode()
            self.send_response(code)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(text)),
                **headers,
            }.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(text)

        do_PATCH = do_GET = do_POST  # noqa: N815 (named by BaseHTTPRequestHandler)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
