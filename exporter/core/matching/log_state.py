"""What is kept of a log between two chunks, and its JSON text for the state file."""

import json
from collections.abc import Mapping
from typing import Any

from exporter.core.matching.log_end import RUNNING, LogEnd, dump_log_end, load_log_end
from exporter.core.matching.raising import Report
from exporter.core.model import NO_CONTEXT, ContextLine, LogContext
from exporter.core.values import dataclass, field


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
    end: LogEnd = RUNNING
    reports: Mapping[str, Report] = field(default_factory=dict)  # of a kernel log, by GPU


def dump_log_state(state: LogState) -> str:
    out = dump_context(state.context)
    if state.open_line:
        out["open"] = [state.open_line.offset, sorted(state.open_line.shown)]
    if state.end != RUNNING:
        out["end"] = dump_log_end(state.end)
    if state.reports:
        out["reports"] = state.reports
    return json.dumps(out, separators=(",", ":"))


def load_log_state(text: str) -> LogState:
    stored = json.loads(text)
    open_line = None
    if "open" in stored:
        offset, shown = stored["open"]
        open_line = OpenLine(offset, frozenset((at, signature) for at, signature in shown))
    context = load_context(stored)
    reports = {str(gpu): Report(*report) for gpu, report in stored.get("reports", {}).items()}
    return LogState(context, open_line, load_log_end(stored.get("end", {}), context), reports)


def dump_context(context: LogContext) -> dict[str, Any]:
    """A log's context as plain data."""
    marks = {
        name: {"path": m.path, "line": m.line, "text": m.text, "captures": dict(m.captures)}
        for name, m in context.marks.items()
    }
    return {"facts": dict(context.facts), "marks": marks}


def load_context(stored: Mapping[str, Any]) -> LogContext:
    """The context that `dump_context` wrote."""
    if not stored["facts"] and not stored["marks"]:
        return NO_CONTEXT
    marks = {name: ContextLine(**m) for name, m in stored["marks"].items()}
    return LogContext(facts=stored["facts"], marks=marks)
