"""Which node each pod is on, as the Kubernetes API server says: proof of a daemon's node that no daemon can forge.

Needs the right to list pods in one namespace, and for `node_of` to get pods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from exporter.config.outputs import TlsSettings
from exporter.net.credentials import ContextCache, read_secret
from exporter.net.http import RequestFailed, request
from exporter.net.url import parse_url

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE, MAX_PAGES = 500, 100
MAX_PAGE_BYTES = 32 << 20  # a pod takes some 8 kB
TIMEOUT_SECONDS = 10.0
ENDED = ("Succeeded", "Failed")  # phases of a pod whose address may be another pod's by now


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of a cluster. The token's file is read for each request, because the kubelet replaces it within the hour."""

    base: str
    token_file: Path | None
    namespace: str
    contexts: ContextCache

    @classmethod
    def at(cls, base: str, token_file: Path | None, ca_file: Path | None, namespace: str) -> Pods:
        contexts = ContextCache(TlsSettings(ca_file=ca_file))
        return cls(base=base.rstrip("/"), token_file=token_file, namespace=namespace, contexts=contexts)

    @classmethod
    def of_this_cluster(cls) -> Pods:
        """Raises ValueError outside of a cluster, and for a pod without an account's token."""
        base, token = cluster_url(), ACCOUNT / "token"
        if base is None or not token.exists():
            raise ValueError("not in a pod with the token of a service account; see automountServiceAccountToken")
        return cls.at(base, token, ACCOUNT / "ca.crt", own_namespace())

    def nodes_by_address(self) -> dict[str, str]:
        """The node of each address of a pod in the namespace. Raises ValueError, OSError."""
        nodes: dict[str, str] = {}
        for pod in self._listed():
            spec, status, meta = pod.get("spec") or {}, pod.get("status") or {}, pod.get("metadata") or {}
            node = spec.get("nodeName")
            if not isinstance(node, str) or status.get("phase") in ENDED or meta.get("deletionTimestamp"):
                continue
            for address in (status.get("podIP"), *(one.get("ip") for one in status.get("podIPs") or ())):
                if isinstance(address, str) and nodes.setdefault(address, node) != node:
                    raise ValueError(f"pods on two nodes, {nodes[address]} and {node}, have the address {address}")
        return nodes

    def node_of(self, namespace: str, name: str) -> str | None:
        """The node that a pod is on; None if there is no such pod. Raises ValueError, OSError."""
        pod = self._get(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}")
        node = (pod.get("spec") or {}).get("nodeName") if pod else None
        return node if isinstance(node, str) else None

    def _listed(self) -> Iterator[dict[str, Any]]:
        more = ""
        for _ in range(MAX_PAGES):
            page = self._get(f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods?limit={PAGE}{more}")
            if page is None:
                raise ValueError(f"no namespace {self.namespace}")
            yield from page.get("items") or ()
            follow = (page.get("metadata") or {}).get("continue")
            if not follow:
                return
            more = f"&continue={quote(str(follow), safe='')}"
        raise ValueError(f"more than {PAGE * MAX_PAGES:,} pods in namespace {self.namespace}")

    def _get(self, path: str) -> dict[str, Any] | None:
        headers = {"Accept": "application/json"}
        if self.token_file:
            headers["Authorization"] = f"Bearer {read_secret(self.token_file).strip()}"
        try:
            response = request(
                "GET", parse_url(f"{self.base}{path}"), headers, context=self.contexts.get(), seconds=TIMEOUT_SECONDS,
                max_body=MAX_PAGE_BYTES,
            )  # fmt: skip
            if response.status == 404:
                return None
            if response.status != 200:
                advice = "; may the service account list pods?" if response.status == 403 else ""
                raise ValueError(f"the API server answered {response.status}{advice}")
            answer = json.loads(response.body)
        except (RequestFailed, RecursionError) as error:
            raise ValueError(f"the API server: {error}") from None
        if not isinstance(answer, Mapping):
            raise ValueError("the API server's answer is not an object")
        return dict(answer)


def cluster_url() -> str | None:
    """The API server of the cluster that this process runs in; None outside of one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return None if not host else f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def own_namespace() -> str:
    """The namespace of this pod; `default` outside of one."""
    path = ACCOUNT / "namespace"
    return path.read_text(encoding="utf-8").strip() if path.exists() else "default"
