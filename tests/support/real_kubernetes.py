"""A real kube-apiserver on a real etcd, on free ports of loopback: .tools/kube-apiserver and .tools/etcd, where they are.

Both can be built from their Go modules (k8s.io/kubernetes/cmd/kube-apiserver, go.etcd.io/etcd/server/v3/etcdmain), which
takes two cores seven minutes, too long for CI.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.deploy.tools import tool
from tests.e2e.conftest import eventually
from tests.support.monitoring import Program, free_port

ETCD, API_SERVER = tool("etcd"), tool("kube-apiserver")
ADMIN, REPORTER = "admin-token", "reporter-token"


class RealKubernetes:
    """The API server with nodes, and a user `reporter` whose rights are those of `rules`."""

    def __init__(self, folder: Path, rules: list[dict[str, Any]], *nodes: str) -> None:
        assert ETCD
        assert API_SERVER
        self.ca_file, self.token_file = folder / "ca.pem", folder / "reporter.token"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca_file)
        serving = authority.issue_cert("127.0.0.1")
        serving.private_key_pem.write_to_path(folder / "tls.key")
        serving.cert_chain_pems[0].write_to_path(folder / "tls.crt")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (folder / "sa.key").write_bytes(pem)
        tokens = f'{ADMIN},admin,1,"system:masters"\n{REPORTER},reporter,2\n'
        (folder / "tokens.csv").write_text(tokens)
        self.token_file.write_text(REPORTER)
        etcd, peer, port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{port}"
        self._context = ssl.create_default_context(cafile=str(self.ca_file))
        self._etcd = Program(
            folder / "etcd.log", str(ETCD), f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )  # fmt: skip
        self._server = Program(
            folder / "apiserver.log", str(API_SERVER), f"--etcd-servers=http://127.0.0.1:{etcd}", f"--secure-port={port}",
            "--bind-address=127.0.0.1", f"--tls-cert-file={folder}/tls.crt", f"--tls-private-key-file={folder}/tls.key",
            f"--cert-dir={folder}/certs", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/sa.key", f"--service-account-signing-key-file={folder}/sa.key",
            f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24",
        )  # fmt: skip
        eventually(lambda: self.is_ready() or None, seconds=180.0)
        for node in nodes:
            self._do("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": node}})
        rbac, name = "/apis/rbac.authorization.k8s.io/v1", {"name": "reporter"}
        api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        self._do("POST", f"{rbac}/clusterroles", {**api, "kind": "ClusterRole", "metadata": name, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reporter"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reporter"}
        binding = {**api, "kind": "ClusterRoleBinding", "metadata": name, "roleRef": role, "subjects": [subject]}
        self._do("POST", f"{rbac}/clusterrolebindings", binding)

    def is_ready(self) -> bool:
        assert self._server.process.poll() is None, self._server.log.read_text()[-3000:]
        try:
            self._do("GET", "/readyz?exclude=poststarthook/start-system-namespaces-controller")
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        self._server.stop()
        self._etcd.stop()

    def condition(self, node: str) -> dict[str, Any] | None:
        found = self._do("GET", f"/api/v1/nodes/{node}")["status"].get("conditions") or []
        return next((each for each in found if each["type"] == "GPUFaultDetected"), None)

    def reasons(self) -> set[str]:
        """The reasons of all events."""
        return {event["reason"] for event in self._do("GET", "/api/v1/events")["items"]}

    def _do(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body else None
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._context) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            raise
        found: dict[str, Any] = json.loads(text) if text.startswith(b"{") else {}
        return found
