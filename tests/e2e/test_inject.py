"""`gpufault inject` where the daemon's endpoint has TLS and users."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from .conftest import Guarded, Node, gpufault


def test_a_test_line_is_seen_through_tls_and_with_a_password(make_node: Callable[..., Node], guarded: Guarded) -> None:
    node = make_node()
    node.wrap = guarded.environment
    node.start()

    def inject(*flags: str) -> tuple[int, str]:
        where = ("--config.file", str(node.config), f"--url=https://{node.address}/metrics")
        done = subprocess.run([gpufault(), "inject", *where, *flags], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = inject(guarded.trust)
    assert code == 3
    assert "401 Unauthorized; give --user and --password-file" in said
    assert "certificate verify failed" in inject(*guarded.login)[1].lower()
    code, said = inject(guarded.trust, *guarded.login)
    assert code == 0, said
    assert said.startswith("seen: ")
