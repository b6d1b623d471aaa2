"""What is kept of a log between two chunks, and its JSON text for the state file."""

from __future__ import annotations

import json
from dataclasses import dataclass

from exporter.core.model import NO_CONTEXT, LogContext
from exporter.core.stored import dump_context, load_context


@dataclass(frozen=True, slots=True)
class OpenLine:
    """A line whose end has not come: where its last part starts (behind a carriage return, or with the line), and what
    that and all behind it has shown so far (at which offset, which signature).
    """

    offset: int
    shown: frozenset[tuple[int, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class LogState:
    context: LogContext = NO_CONTEXT
    open_line: OpenLine | None = None


def dump_log_state(state: LogState) -> str:
    out = dump_context(state.context)
    if state.open_line:
        out["open"] = [state.open_line.offset, sorted(state.open_line.shown)]
    return json.dumps(out, separators=(",", ":"))


def load_log_state(text: str) -> LogState:
    stored = json.loads(text)
    open_line = None
    if "open" in stored:
        offset, shown = stored["open"]
        open_line = OpenLine(offset, frozenset((at, signature) for at, signature in shown))
    return LogState(load_context(stored), open_line)
