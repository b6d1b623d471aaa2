"""How a fleet service stands: its last result, and how its refreshes went. One value, replaced whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Why a refresh gave no result: the journals or the API could not be read; what was asked makes no sense; it took too
# long; a signal ended it, as the kernel's does when memory is short; our own bug.
SOURCE, CONFIGURATION, TIMEOUT, KILLED, INTERNAL = REASONS = (
    "source", "configuration", "timeout", "killed", "internal",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A refresh that gave no result: one of REASONS, and what to tell a person."""

    reason: str
    message: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """What web side and metrics show. Times are Unix seconds.

    `result` is the Correlation JSON of the contract as the last refresh that gave one left it, at `result_time`;
    `failure` is that of the last refresh, where it gave none. `complete_time` is when a result last lacked nothing.
    """

    result: Mapping[str, Any] | None = None
    result_time: float = 0.0
    complete_time: float | None = None
    tag: str = ""  # changes with the result
    failure: Failure | None = None
    refreshes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    duration: float = 0.0
    running: bool = False
    reload_ok: bool = True
    reload_time: float = 0.0
    web_config_ok: bool | None = None  # None: there is no such file
    web_config_time: float = 0.0

    @property
    def changed(self) -> float:
        """When what the API answers last became another."""
        return max(self.result_time, self.failure.time if self.failure else 0.0)

    @property
    def entity_tag(self) -> str:
        """Names what the API answers, its age aside."""
        failed = f"{self.failure.reason} {self.failure.time}" if self.failure else ""
        return hashlib.blake2b(f"{self.tag} {failed}".encode(), digest_size=12).hexdigest()
