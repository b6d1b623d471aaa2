"""As much of an API server as Helm needs: discovery, and objects in memory that it creates, replaces, lists, watches and
deletes. Nothing is validated (tests/deploy/kubernetes.py does that), and no controller runs, except for Jobs.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.deploy.kubernetes import NEWEST, OPERATOR, Object

RESOURCES = {
    "v1": {
        "configmaps": "ConfigMap", "persistentvolumeclaims": "PersistentVolumeClaim", "pods": "Pod", "secrets": "Secret",
        "serviceaccounts": "ServiceAccount", "services": "Service",
    },
    "apps/v1": {"daemonsets": "DaemonSet", "deployments": "Deployment"},
    "batch/v1": {"jobs": "Job"},
    "rbac.authorization.k8s.io/v1": {"roles": "Role", "rolebindings": "RoleBinding"},
    OPERATOR: {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule", "servicemonitors": "ServiceMonitor"},
}  # fmt: skip
_PROTOBUF = b"k8s\0"
_PATH = re.compile(r"/(?:api|apis)/(?P<version>v1|[^/]+/v1)/namespaces/[^/]+/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?")


class ApiServer:
    """The objects by their paths. run_job: whether a Job that was created succeeds."""

    def __init__(self, run_job: Callable[[Object], bool] = lambda _: True) -> None:
        self.objects: dict[str, Object] = {}
        self.run_job = run_job
        self._version = 0
        self._ending = threading.Event()
        server = self

        class Handler(_Handler):
            api = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def names(self) -> set[str]:
        """Kind/name of all objects but Helm's own records."""
        found = [each for each in self.objects.values() if each.get("type") != "helm.sh/release.v1"]
        return {f"{each['kind']}/{each['metadata']['name']}" for each in found}

    def one(self, kind: str, name: str) -> Object:
        (found,) = [e for e in self.objects.values() if (e["kind"], e["metadata"]["name"]) == (kind, name)]
        return found

    def put(self, path: str, item: Object) -> Object:
        """Create or replace an object."""
        self._version += 1
        item["metadata"] = {"namespace": "gpu", "uid": path, **item["metadata"], "resourceVersion": str(self._version)}
        self.objects[path] = item
        if item["kind"] == "Job":
            condition = "Complete" if self.run_job(item) else "Failed"
            item["status"] = {"conditions": [{"type": condition, "status": "True", "reason": "Test"}]}
        return item

    def wait(self) -> None:
        """Until the end: a watch has nothing more to tell."""
        self._ending.wait()


@contextmanager
def serving(run_job: Callable[[Object], bool] = lambda _: True) -> Iterator[ApiServer]:
    server = ApiServer(run_job)
    try:
        yield server
    finally:
        server.close()


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        found = _PATH.fullmatch(url.path)
        if not found:
            self._answer(_discovery(url.path))
        elif found["name"]:
            self._answer(self.api.objects.get(url.path))
        else:
            self._list(found["version"], found["resource"], url.path, parse_qs(url.query))

    def do_POST(self) -> None:
        item = self._body()
        path = f"{urlsplit(self.path).path}/{item['metadata']['name']}"
        self._answer(self.api.put(path, item) if path not in self.api.objects else None, 201, 409)

    def do_PUT(self) -> None:
        self._answer(self.api.put(urlsplit(self.path).path, self._body()))

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(self.api.objects.pop(urlsplit(self.path).path, None))

    def log_message(self, *_: Any) -> None:
        pass

    def _list(self, version: str, resource: str, path: str, query: dict[str, list[str]]) -> None:
        items = [item for key, item in self.api.objects.items() if key.rpartition("/")[0] == path]
        labels = dict(part.split("=") for part in query.get("labelSelector", [""])[0].split(",") if "=" in part)
        items = [item for item in items if labels.items() <= item["metadata"].get("labels", {}).items()]
        if name := query.get("fieldSelector", [""])[0].removeprefix("metadata.name="):
            items = [item for item in items if item["metadata"]["name"] == name]
        if query.get("watch") in (["true"], ["1"]):
            self._watch(items, version, resource)
            return
        kind = f"{RESOURCES[version][resource]}List"
        self._answer({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})

    def _watch(self, items: list[Object], version: str, resource: str) -> None:
        end = {"k8s.io/initial-events-end": "true"}
        mark = {"kind": RESOURCES[version][resource], "apiVersion": version}
        events = [{"type": "ADDED", "object": item} for item in items]
        events.append(
            {"type": "BOOKMARK", "object": {**mark, "metadata": {"resourceVersion": "1", "annotations": end}}}
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write("".join(json.dumps(event) + "\n" for event in events).encode())
        self.wfile.flush()
        self.api.wait()

    def _body(self) -> Object:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found: Object = _secret(data) if data.startswith(_PROTOBUF) else json.loads(data or b"{}")
        return found

    def _answer(self, item: Object | None, status: int = 200, refused: int = 404) -> None:
        reason = {404: "NotFound", 409: "AlreadyExists"}[refused]
        failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": refused}
        body = json.dumps(failure if item is None else item).encode()
        self.send_response(refused if item is None else status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _secret(data: bytes) -> Object:
    """A Secret as Helm's typed client sends it: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding."""
    secret = _fields(_fields(data.removeprefix(_PROTOBUF))[2][0])  # runtime.Unknown.raw
    metadata = _fields(secret[1][0])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": secret[3][0].decode(),
        "metadata": {
            "name": metadata[1][0].decode(),
            "labels": {key: value.decode() for key, value in _map(metadata.get(11, [])).items()},
        },
        "data": {key: base64.b64encode(value).decode() for key, value in _map(secret.get(2, [])).items()},
    }


def _map(entries: list[bytes]) -> dict[str, bytes]:
    return {entry[1][0].decode(): entry[2][0] for entry in map(_fields, entries)}


def _fields(data: bytes) -> dict[int, list[bytes]]:
    """The length-delimited fields of a message, by number; numbers are skipped."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        size, at = _varint(data, at)
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(data[at : at + size])
            at += size
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def _discovery(path: str) -> Object | None:
    if path == "/version":
        major, _, minor = NEWEST.partition(".")
        return {"major": major, "minor": minor, "gitVersion": f"v{NEWEST}.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [version.partition("/")[0] for version in RESOURCES if "/" in version]
        versions = {group: {"groupVersion": f"{group}/v1", "version": "v1"} for group in groups}
        listed = [{"name": g, "versions": [v], "preferredVersion": v} for g, v in versions.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if path.startswith("/openapi/v3"):
        return _openapi(path.removeprefix("/openapi/v3").strip("/"))
    version = path.removeprefix("/apis/").removeprefix("/api/")
    if version not in RESOURCES:
        return None
    verbs = ["create", "delete", "get", "list", "update", "watch"]
    listed = [{"name": n, "kind": k, "namespaced": True, "verbs": verbs} for n, k in RESOURCES[version].items()]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


def _openapi(path: str) -> Object | None:
    """That each object can be validated by the server, so that Helm does not try to."""
    places = {f"apis/{version}" if "/" in version else f"api/{version}": version for version in RESOURCES}
    if not path:
        return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}}
    if path not in places:
        return None
    group = places[path].partition("/")[0] if "/" in places[path] else ""
    parameters = [{"name": "fieldValidation", "in": "query"}]
    paths = {
        f"/{path}/namespaces/{{namespace}}/{name}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": kind},
            }
        }
        for name, kind in RESOURCES[places[path]].items()
    }
    return {"openapi": "3.0.0", "info": {"title": "objects", "version": "1"}, "paths": paths}
