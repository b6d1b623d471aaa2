"""Renders HTML pages from templates, and the node's landing page. All values are redacted and escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.core.diagnosis.node_faults import Fault
from exporter.core.model import ACTION_WORDS, UNKNOWN
from exporter.core.text.phrases import counted, printable
from exporter.core.text.redact import redact
from exporter.web.interface import Overview, RecentIncident, SourceState

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from exporter.core.authoring.explanation import Explanation
    from exporter.core.catalogue.outcomes import Outlook

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = Path(__file__).parent / "static" / "node.js"

_STYLE = """
:root { color-scheme: light dark; --infrastructure: #c2410c; --workload: #2563a8; --unclear: #666f79; --ink: #1c1f23;
  --dim: #5b656d; --background: #fbfbfa; --card: #fff; --line: #e1e4e7; --worse: #b3261e; --better: #17734f }
@media (prefers-color-scheme: dark) { :root { --infrastructure: #f59e6b; --workload: #7fb4ea; --unclear: #9aa3ad;
  --ink: #e6e9ec; --dim: #a0aab3; --background: #111418; --card: #181c21; --line: #2d343b; --worse: #f28b82;
  --better: #5cc79b } }
* { box-sizing: border-box }
body { margin: 0; background: var(--background); color: var(--ink); font: 15px/1.45 system-ui, sans-serif }
header { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: .7rem 1.5rem; background: var(--card);
  border-bottom: 1px solid var(--line) }
header b { margin-right: auto } main { max-width: 96rem; margin: 0 auto; padding: 1.2rem 1.5rem 3rem }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 } h2 { font-size: 1rem; margin: 0 0 .3rem }
h3 { font-size: .9rem; margin: 1rem 0 .2rem } h1, td, li, p { overflow-wrap: anywhere } p, ul { margin: .4rem 0 }
a { color: var(--workload); text-underline-offset: 3px } header a, h1 a { text-decoration: none }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem;
  margin: 1rem 0 0; overflow-x: auto }
.halves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 0 1rem }
.note, .id, footer { color: var(--dim); font-size: .85rem } .worse { color: var(--worse) } .better { color: var(--better) }
.tag { font-size: .75rem; padding: .02rem .45rem; border-radius: 99px; border: 1px solid currentColor; white-space: nowrap }
.infrastructure { color: var(--infrastructure) } .workload { color: var(--workload) } .unclear { color: var(--unclear) }
code, pre, [data-head="Line"] { font: .8rem/1.5 ui-monospace, monospace } pre { white-space: pre-wrap; overflow-wrap: anywhere;
  padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; background: var(--background) }
table { width: 100%; border-collapse: collapse; font-size: .9rem }
th { color: var(--dim); font-size: .8rem } th, td { text-align: left; vertical-align: top; padding: .35rem 1rem .35rem 0;
  border-bottom: 1px solid var(--line) } tr:last-child td { border-bottom: 0 }
td { min-width: 4rem; unicode-bidi: isolate } [data-head="Crash"] { min-width: 10rem }
[data-head="Because of"] { min-width: 16rem } [data-head="Where"] { min-width: 8rem; font-size: .8rem }
[data-head="GPU"] { min-width: 8rem }
:is([data-head="What to do"], [data-head="How"]) { min-width: 16rem } [data-head="Line"] { min-width: 15rem }
time { white-space: nowrap; font-variant-numeric: tabular-nums } details summary { cursor: pointer; color: var(--dim) }
@media (max-width: 44rem) {
  main { padding: 1rem } h1 { font-size: 1.2rem } tr td[data-head] { min-width: 0 }
  thead { position: absolute; left: -99rem } td:empty { display: none } td { display: block; border: 0; padding: 0 }
  table, tbody { display: block } td:not(:first-child)::before { content: attr(data-head) " "; color: var(--dim) }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line) }
}
"""

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'sha256-{}'; script-src 'self'; connect-src 'self'; {}".format(
    base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode(),
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",  # default-src does not cover these
)


MAX_LINE_CHARS = 200  # of a line in the table; the journal has up to 2,048
MAX_REASONS = 4  # pieces of evidence of an incident in the table
VERDICTS = ("infrastructure", "workload", "unclear")
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
        heading=_heading(overview),
        not_ready=not_ready,
        impaired=first_few(impaired),
        hints=first_few(overview.hints),
        telemetry_path=telemetry_path,
        faults=[_fault_row(fault, title) for fault in overview.faults],
        causes=[
            (_named(cause, title) if cause != UNKNOWN else "cause unknown", f"{count:,}")
            for cause, count in overview.causes
        ],
        sources=[_source_row(source) for source in overview.sources],
        heads=("Time (UTC)", "Crash", "Because of", "Where", *(("Line",) if with_lines else ()), "What to do"),
        incidents=[
            _incident_row(incident, title, with_lines=with_lines)
            for incident in sorted(overview.incidents, key=lambda incident: -incident.time)
        ],
        at_risk=[(_named(cause, title),) for cause in overview.at_risk],
        with_lines=with_lines,
    )


def explanation_page(name: str, explanation: Explanation, title: Callable[[str], str]) -> str:
    """The page of a signature or root cause as HTML."""
    return render(
        "explanation.html",
        [],
        name=name,
        explanation=explanation,
        related=[_named(id_, title) for id_ in explanation.related],
        reports=[(_named(id_, title), outlook_html(outlook)) for id_, outlook in explanation.outlooks],
    )


def outlook_html(outlook: Outlook) -> Markup:
    """What settled reports of a line turned out to be, and what would decide. All pages show it so."""
    from markupsafe import Markup

    return Markup(render("reports.html", [], outlook=outlook))  # noqa: S704 - rendered from a template


def _heading(overview: Overview) -> str:
    incidents = sum(count for _, count in overview.causes)
    counts = f"{counted(incidents, 'incident')} counted" if incidents else "No incident counted"
    faults = len(overview.faults)
    if not faults:
        return f"{counts}; no open fault"
    return f"{counted(faults, 'open fault')}: {ACTION_WORDS[overview.faults[0].action]}. {counts}"


def _named(name: str, title: Callable[[str], str]) -> Markup:
    """The title of a signature or root cause, with a link to its page; of what is not an id, the title alone."""
    from markupsafe import Markup, escape

    label = printable(redact(title(name)))
    is_id = re.fullmatch(r"[a-z][a-z0-9_]{0,99}", name)
    return Markup('<a href="/signatures/{}">{}</a>').format(name, label) if is_id else escape(label)


def with_code(text: str) -> Markup:
    """A text with its code, which stands in backticks, as elements. Redacted and escaped."""
    from markupsafe import Markup, escape

    parts = re.split(r"`([^`]*)`", printable(redact(text)))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def render(template: str, folders: Sequence[Path], **values: Any) -> str:
    """Render a template from `folders` or from our own templates. Redacts every value, so that none can show a secret."""
    return _redacting_environment(*folders, TEMPLATES).get_template(template).render(values)


@cache
def _redacting_environment(*folders: Path) -> Environment:
    from markupsafe import Markup

    def finalize(value: object) -> object:
        if isinstance(value, Markup):
            return value
        if isinstance(value, datetime):
            return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%Y-%m-%d %H:%M:%S}</time>').format(value, value)
        return printable(redact(str(value)))

    made = environment(folders, finalize)
    made.globals |= {"with_code": with_code, "style": Markup(_STYLE)}  # noqa: S704 - a constant of this file
    return made


def environment(folders: Sequence[Path], finalize: Callable[[Any], object], **options: Any) -> Environment:
    """The templates of these folders, escaped and strict. Imports jinja2 here: a daemon whose page nobody opens needs none."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined, finalize=finalize, auto_reload=False,
        **options,
    )  # fmt: skip


def utc(time: float) -> datetime:
    """Unix seconds as a value for a template."""
    return datetime.fromtimestamp(time, UTC)


def _fault_row(fault: Fault, title: Callable[[str], str]) -> tuple[object, ...]:
    from markupsafe import Markup

    since = fault.openings[-1] if fault.openings else fault.time
    crash: object = _named(fault.signature, title)
    if fault.root_cause != UNKNOWN:
        crash = Markup("{}: {}").format(crash, _named(fault.root_cause, title))
    return (
        utc(since),
        crash,
        fault.gpu or "",
        ACTION_WORDS[fault.action],
        f"{fault.times}",
        with_code(fault.remediation),
    )


def _source_row(source: SourceState) -> tuple[object, ...]:
    state = "up" if source.up else f"down: {source.down_reason}"
    return source.name, state, f"{source.files:,}", f"{source.lag:.0f} s" if source.lag >= 1 else "none"


def _incident_row(incident: RecentIncident, title: Callable[[str], str], *, with_lines: bool) -> tuple[object, ...]:
    from markupsafe import Markup

    cause: object = "cause unknown" if incident.root_cause == UNKNOWN else _named(incident.root_cause, title)
    if incident.verdict in VERDICTS:
        cause = Markup('{} <span class="tag {}">{}</span>').format(cause, incident.verdict, incident.verdict)
    for reason in _first_reasons(incident.because) if with_lines else ():
        cause = Markup('{}<br><span class="note">{}</span>').format(cause, printable(redact(clipped(reason))))
    job = [f"job {clipped(incident.job)}"] if incident.job and with_lines else []
    where = [*job, f"GPU {incident.gpu}" if incident.gpu else "", clipped(incident.log) if with_lines else ""]
    line = (clipped(incident.line),) if with_lines else ()
    crash = _named(incident.signature, title)
    if incident.late:
        crash = Markup('{}<br><span class="note">read late, not counted</span>').format(crash)
    return (
        utc(incident.time),
        crash,
        cause,
        ", ".join(filter(None, where)),
        *line,
        with_code(incident.remediation),
    )


def _first_reasons(because: Sequence[str]) -> list[str]:
    """The first pieces of evidence, and how many more there are. The journal has all."""
    more = len(because) - MAX_REASONS
    return [*because[:MAX_REASONS], *([f"and {more} more"] if more > 0 else [])]


def clipped(line: str) -> str:
    """A line for a table's cell."""
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 1]}…"
