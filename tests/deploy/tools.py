"""The programs that `make go-tools` builds into .tools, or that are installed."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".tools"


def tool(name: str) -> Path | None:
    built = sorted(FOLDER.glob(f"{name}@*")) or sorted(FOLDER.glob(name))
    found = shutil.which(name)
    return built[-1] if built else Path(found) if found else None
