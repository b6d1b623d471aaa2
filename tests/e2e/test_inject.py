"""`gpufault inject` where the daemon's endpoint has TLS and users."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import bcrypt
import trustme

from .conftest import Node, gpufault


def test_a_test_line_is_seen_through_tls_and_with_a_password(make_node: Callable[..., Node], tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    hashed = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
    web = {"tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"}, "basic_auth_users": {"sre": hashed}}
    (tmp_path / "web.yaml").write_text(json.dumps(web))
    (tmp_path / "password").write_text("open sesame\n")
    node = make_node()
    node.wrap = ("env", f"GPUFAULT_WEB_CONFIG_FILE={tmp_path}/web.yaml")
    node.start()

    def inject(*flags: str) -> tuple[int, str]:
        where = ("--config.file", str(node.config), f"--url=https://{node.address}/metrics")
        done = subprocess.run([gpufault(), "inject", *where, *flags], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    trust = f"--ca-file={tmp_path}/ca.pem"
    code, said = inject(trust)
    assert code == 3
    assert "401 Unauthorized; give --user and --password-file" in said
    assert "certificate verify failed" in inject("--user=sre", f"--password-file={tmp_path}/password")[1].lower()
    code, said = inject(trust, "--user=sre", f"--password-file={tmp_path}/password")
    assert code == 0, said
    assert said.startswith("seen: ")
