"""What a request to a node shows: a token for that node alone, or the user and password of the configuration."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from exporter.config.pull import PullConfig
from exporter.net.tokens import sign
from exporter.outputs.files import read_secret


def node_headers(config: PullConfig, audience: Sequence[str]) -> dict[str, str]:
    """The headers of a request to one node. audience: its name if that is proven, its address. Raises OSError, ValueError."""
    if config.token_key_file is None:
        return basic_auth(config.user, config.password_file)
    try:
        return {"Authorization": f"Bearer {sign(read_secret(config.token_key_file), audience)}"}
    except ValueError as error:
        raise ValueError(f"{config.token_key_file}: {error}") from None


def basic_auth(user: str | None, password_file: Path | None) -> dict[str, str]:
    """The header of basic authentication, if there is a user. Raises OSError, ValueError."""
    if user is None:
        return {}
    password = secret(password_file) if password_file else ""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def secret(path: Path) -> str:
    """The text of a file with a secret. Raises OSError, ValueError."""
    return read_secret(path).strip()
