"""Pages as HTML: what all have in common, and the node's landing page, from an Overview. Every text in them may be
hostile; nothing of it is trusted or kept.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from exporter.core.text.printable import printable
from exporter.core.text.redact import redact
from exporter.web.interface import Overview, RecentIncident, SourceState

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p, ul { margin: .5rem 0 } nav a { margin-right: 1rem }
table { width: 100%; border-collapse: collapse; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #8885 }
td { overflow-wrap: anywhere; min-width: 5rem; unicode-bidi: isolate }
:is([data-head="Signature"], [data-head="Root cause"], [data-head="Crash"], [data-head="With"],
  [data-head="Because of"]) { min-width: 15.5rem }
[data-head="Where"] { min-width: 9rem }
time { white-space: nowrap; font-variant-numeric: tabular-nums }
@media (max-width: 40rem) {
  thead, td:empty { display: none } td { display: block; border: 0; padding: 0 }
  table { font-size: 1rem }
  td::before { content: attr(data-head) ": "; opacity: .7 }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid #8885 }
}
"""

POLICY = "default-src 'none'; style-src 'sha256-{}'; {}".format(
    base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode(),
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",  # default-src does not stand for these
)


MAX_IMPAIRED = 20  # named here and by /-/ready: a job may have a thousand logs, and metrics have the ids of all


def first_few(impaired: Sequence[str]) -> list[str]:
    """What is temporarily off, as far as it is named, and how much more there is."""
    more = len(impaired) - MAX_IMPAIRED
    return [*impaired[:MAX_IMPAIRED], *([f"and {more:,} more"] if more > 0 else [])]


def landing_page(
    overview: Overview, not_ready: Sequence[str], telemetry_path: str, impaired: Sequence[str] = ()
) -> str:
    """The page, as text that UTF-8 can hold."""
    reasons = "".join(f"<li>{shown(reason)}" for reason in not_ready)
    state = f"<p>Not ready:\n<ul>{reasons}</ul>" if reasons else "<p>Ready."
    if impaired:
        state += f"\n<p>Temporarily off:\n<ul>{''.join(f'<li>{shown(one)}' for one in first_few(impaired))}</ul>"
    body = f"""<h1>gpufault on {shown(overview.node)}</h1>
<p>Version {shown(overview.version)}.
{state}
<nav>
<a href="{shown(telemetry_path)}">Metrics</a>
<a href="/-/healthy">Health</a>
<a href="/-/ready">Readiness</a>
</nav>
<h2>Sources</h2>
{table(("Source", "State"), [_source_row(source) for source in overview.sources])}
<h2>Last incidents</h2>
{table(("Time (UTC)", "Signature", "Root cause", "Where", "What to do"), [_incident_row(i) for i in overview.incidents])}"""
    return document(f"gpufault on {overview.node}", body)


def document(title: str, body: str) -> str:
    """A whole page in the one style that POLICY lets pass; `body` is HTML already."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{shown(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def shown(text: str) -> str:
    """A text as HTML, without its secrets."""
    return escape(printable(redact(text)))


def _source_row(source: SourceState) -> list[str]:
    return [shown(source.name), "up" if source.up else shown(f"down: {source.why_down}")]


def _incident_row(incident: RecentIncident) -> list[str]:
    whose = f" ({incident.verdict})" if incident.verdict in {"infrastructure", "workload"} else ""
    where = [f"job {incident.job}" if incident.job else "", f"GPU {incident.gpu}" if incident.gpu else "", incident.log]
    told = (incident.signature, incident.root_cause + whose, ", ".join(filter(None, where)), incident.remediation)
    return [moment(incident.time), *map(shown, told)]


def moment(time: float) -> str:
    """Unix seconds as HTML, in UTC."""
    at = datetime.fromtimestamp(time, UTC)
    return f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M:%S}</time>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already. On a narrow screen each has its head before it."""
    if not rows:
        return "<p>None."
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "\n".join(f"<tr>{''.join(map(_cell, heads, row))}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _cell(head: str, cell: str) -> str:
    return f'<td data-head="{head}">{cell}</td>'
