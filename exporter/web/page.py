"""Renders HTML pages from templates, and the node's landing page. All values are redacted and escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.core.diagnosis.node_faults import Fault
from exporter.core.model import UNKNOWN, Action
from exporter.core.text.printable import printable
from exporter.core.text.redact import redact
from exporter.web.interface import Overview, RecentIncident, SourceState

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p, ul { margin: .5rem 0 } nav a { margin-right: 1rem }
table { width: 100%; border-collapse: collapse; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #8885 }
td { overflow-wrap: anywhere; min-width: 5rem; unicode-bidi: isolate }
:is([data-head="Crash"], [data-head="Because of"]) { min-width: 10rem }
[data-head="Where"] { min-width: 9rem }
[data-head="GPU"] { min-width: 7rem }
:is([data-head="What to do"], [data-head="How"]) { min-width: 17rem }
[data-head="Line"] { min-width: 14rem; font: .8rem ui-monospace, monospace }
time { white-space: nowrap; font-variant-numeric: tabular-nums }
@media (max-width: 40rem) {
  tr td[data-head] { min-width: 0 }
  thead, td:empty { display: none } td { display: block; border: 0; padding: 0 }
  table { font-size: 1rem }
  td::before { content: attr(data-head) ": "; opacity: .7 }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid #8885 }
}
"""

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'sha256-{}'; {}".format(
    base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode(),
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",  # default-src does not cover these
)


ACTIONS: Mapping[Action, str] = {
    "ignore": "nothing",
    "restart_job": "restart the job",
    "run_diagnostics": "run diagnostics",
    "reset_gpu": "reset the GPU",
    "reboot": "reboot the node",
    "replace": "replace the part",
}
MAX_LINE_CHARS = 200  # of a line in the table; the journal has up to 2,048
MAX_IMPAIRED = 20  # shown here and by /-/ready: a job may have a thousand logs; /metrics has the ids of all


def first_few(impaired: Sequence[str]) -> list[str]:
    """At most MAX_IMPAIRED of these texts, and the number of the others."""
    others = len(impaired) - MAX_IMPAIRED
    return [*impaired[:MAX_IMPAIRED], *([f"and {others:,} more"] if others > 0 else [])]


def landing_page(
    overview: Overview,
    not_ready: Sequence[str],
    telemetry_path: str,
    impaired: Sequence[str] = (),
    *,
    title: Callable[[str], str] = str,
    with_lines: bool = True,
) -> str:
    """The node's landing page as HTML. title: of a signature or root cause; with_lines: show what jobs printed."""
    return render(
        "node.html",
        [],
        overview=overview,
        not_ready=not_ready,
        impaired=first_few(impaired),
        telemetry_path=telemetry_path,
        faults=[_fault_row(each, title) for each in overview.faults],
        causes=[
            (title(cause) if cause != UNKNOWN else "cause unknown", f"{count:,}") for cause, count in overview.causes
        ],
        sources=[_source_row(each) for each in overview.sources],
        heads=("Time (UTC)", "Crash", "Because of", "Where", *(("Line",) if with_lines else ()), "What to do"),
        incidents=[_incident_row(each, title, with_lines=with_lines) for each in overview.incidents],
        with_lines=with_lines,
    )


def render(template: str, folders: Sequence[Path], **values: Any) -> str:
    """Render a template from `folders` or from our own templates."""
    return _environment(*folders, TEMPLATES).get_template(template).render(values)


@cache
def _environment(*folders: Path) -> Environment:
    """Templates of these folders. Imports jinja2 at the first use, to save memory in a daemon whose page nobody opens."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: object) -> object:
        """Redacts every value of every template before it is escaped, so that no template can show a secret."""
        if isinstance(value, Markup):
            return value
        if isinstance(value, datetime):
            return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%Y-%m-%d %H:%M:%S}</time>').format(value, value)
        return printable(redact(str(value)))

    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        auto_reload=False,
    )
    environment.globals["style"] = Markup(_STYLE)  # noqa: S704 - a constant of this file
    return environment


def utc(time: float) -> datetime:
    """Unix seconds as a value for a template."""
    return datetime.fromtimestamp(time, UTC)


def _fault_row(fault: Fault, title: Callable[[str], str]) -> tuple[object, ...]:
    since = fault.openings[-1] if fault.openings else fault.time
    what = (
        f"{title(fault.signature)}: {title(fault.root_cause)}"
        if fault.root_cause != UNKNOWN
        else title(fault.signature)
    )
    return utc(since), what, fault.gpu or "", ACTIONS[fault.action], f"{fault.times}", fault.remediation


def _source_row(source: SourceState) -> tuple[object, ...]:
    state = "up" if source.up else f"down: {source.down_reason}"
    return source.name, state, f"{source.files:,}", f"{source.lag:.0f} s" if source.lag >= 1 else "none"


def _incident_row(incident: RecentIncident, title: Callable[[str], str], *, with_lines: bool) -> tuple[object, ...]:
    verdict = f" ({incident.verdict})" if incident.verdict in {"infrastructure", "workload"} else ""
    cause = "cause unknown" if incident.root_cause == UNKNOWN else title(incident.root_cause) + verdict
    job = [f"job {incident.job}"] if incident.job and with_lines else []
    where = [*job, f"GPU {incident.gpu}" if incident.gpu else "", incident.log if with_lines else ""]
    line = (clipped(incident.line),) if with_lines else ()
    return (
        utc(incident.time),
        title(incident.signature),
        cause,
        ", ".join(filter(None, where)),
        *line,
        incident.remediation,
    )


def clipped(line: str) -> str:
    """A line for a table's cell."""
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 1]}…"
