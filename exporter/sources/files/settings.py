"""What the configuration says of one source of kind `files`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from exporter.sources.files.discovery import Globs


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """Which files are logs, and how they are read."""

    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    earlier: tuple[FilesSettings, ...] = ()  # sources before this one, whose logs are not this one's
    format: Literal["auto", "plain", "cri", "docker"] = "auto"
    start: Literal["end", "beginning"] = "end"
    allow_roots: tuple[str, ...] = ()
    line_bytes: int = 1 << 20
    open_files: int = 1024
    grace_seconds: float = 30.0  # how long a rotated or deleted file must be quiet: its writers still have it open
    watch: bool = True
    service_accounts: frozenset[int] = frozenset({0})  # users that write logs for others: their files tell no owner

    def globs(self) -> Globs:
        return Globs(self.paths, self.exclude, [source.globs() for source in self.earlier])
