"""Incidents as text for the terminal: what, where, why, what to do; the table of a scan; widths and colours."""

from __future__ import annotations

import os
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from exporter.core.collectives import collective_texts
from exporter.core.model import DOMAIN_WORDS, RESTART_WORDS, STAMPED, STRENGTHS, UNKNOWN, UNRECOGNISED, Domain, Restart
from exporter.core.text.phrases import counted, evidence_text, printable

if TYPE_CHECKING:
    from exporter.core.catalogue.loader import Catalogue
    from exporter.core.catalogue.pack_types import RootCause
    from exporter.scan.run import Summary


TABLE_FROM = 4  # incidents; fewer need no table
_COLORS = {"critical": "1;31", "error": "31", "warning": "33", "info": "36"}


def scan_text(
    records: Sequence[Mapping[str, Any]],
    summary: Summary,
    catalogue: Catalogue,
    *,
    facts: str = "none",
    packs: Sequence[str] = (),
    only_table: bool = False,
    color: bool,
) -> str:
    """The result of a scan. facts, packs: the values of --facts and --signatures.dir. only_table: omit the single incidents."""
    cascades: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record["caused_by"]:
            cascades.setdefault(record["caused_by"], []).append(record)
    roots = [r for r in records if r["role"] == "root"]
    out: list[str] = []
    if not only_table:
        out += [
            incident_text(r, catalogue, cascades.get(r["id"], ()), facts=facts, packs=packs, color=color) for r in roots
        ]
        out += _notes([r for r in records if r["role"] == "context"], catalogue)
    if len(roots) >= TABLE_FROM or (only_table and roots):
        out.append(summary_table(roots, catalogue))
    out.append(_total(roots, summary))
    if any(_is_undecided(r) for r in roots) and facts == "none":
        out.append(_wrapped("Causes depend on the node's facts: run it there with --facts host, or give --facts FILE."))
    return "\n".join(out)


def incident_text(
    record: Mapping[str, Any],
    catalogue: Catalogue,
    cascades: Sequence[Mapping[str, Any]] = (),
    *,
    facts: str = "none",
    packs: Sequence[str] = (),
    color: bool = False,
) -> str:
    """One incident, with the names of its consequences."""
    signature = catalogue.signatures[record["signature"]]
    lines = heading(
        f"{record['path']}:{record['line']}", signature.title, record["severity"], record["text"], color=color
    )
    lines += field("signature", " · ".join([record["signature"], *_extent(record)]))
    cause = catalogue.root_causes.get(record["root_cause"])
    lines += field("cause", cause_text(cause, record["verdict"])) if cause else _without_cause(record, facts, packs)
    if not cause:
        brief = reports_brief(catalogue, record["signature"])
        lines += [*mostly(record["domain"]), *(field("reports", brief) if brief else [])]
    lines += [line for e in record["evidence"] for line in field("because", _because(e), breaks=True)]
    for text in waiting_texts(record, cascades):
        lines += field("ranks", text)
    for other in record["same_time"]:
        lines += field("meanwhile", same_time(other["signature"], other["text"]), breaks=True)
    lines += field("do", record["remediation"]) if record["remediation"] else []
    lines += restart(record["restart"])
    if cascades:
        names = ", ".join(f"{c['signature']} ({location(c, record)})" for c in cascades[:6])
        lines += field("then", names + (f" and {len(cascades) - 6} more" if len(cascades) > 6 else ""))
    return "\n".join(lines) + "\n"


def waiting_texts(record: Mapping[str, Any], cascades: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where the ranks wait, as an incident says, or else the first of its consequences that does."""
    collectives = (one["collectives"] for one in (record, *cascades) if one.get("collectives"))
    return [printable(text) for text in collective_texts(next(collectives, ()))]


def _notes(records: Sequence[Mapping[str, Any]], catalogue: Catalogue) -> list[str]:
    """Warnings that are not crashes, one paragraph for each kind."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        kinds.setdefault(record["signature"], []).append(record)
    out = []
    for name, noted in kinds.items():
        lines = sum(record["lines"] for record in noted)
        more = f", and in {counted(len(noted) - 1, 'other place')}" if len(noted) > 1 else ""
        where = f"{noted[0]['path']}:{noted[0]['line']}{more}"
        out += [f"noted, no crash: {catalogue.signatures[name].title}"]
        out += [*field("signature", f"{name} · {counted(lines, 'line')} · {where}")]
        out += [*field("do", noted[0]["remediation"])] if noted[0]["remediation"] else []
    return ["\n".join(out) + "\n"] if out else []


def heading(where: str, title: str, severity: str, text: str, *, color: bool) -> list[str]:
    """The first lines of an incident: place, title, and at most three lines of the log."""
    quoted = textwrap.wrap(
        one_line(text),
        width(),
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
        max_lines=3,
        placeholder=" …",
    )
    where = printable(where)
    whole = f"{where}: {title}"
    head = [whole] if len(whole) <= width() else [f"{where}:", f"  {title}"]
    return [*(paint(line, _COLORS[severity], color) for line in head), *quoted]


def cause_text(cause: RootCause, verdict: str) -> str:
    """A cause in one sentence, with its id and verdict, and how well it is established."""
    return f"{cause.title} ({cause.id}; {VERDICTS[verdict]}; {STRENGTHS[cause.strength]})"


VERDICTS = {
    "infrastructure": "a fault of the infrastructure",
    "workload": "not a fault of the infrastructure",  # nor always of the job: somebody may have cancelled it
    "unclear": "whose fault is unclear",
}


def mostly(domain: Domain) -> list[str]:
    """Where the fault of a line without a known cause mostly lies; nothing where the line cannot tell."""
    return [] if domain == "unknown" else field("mostly", DOMAIN_WORDS[domain])


def restart(word: Restart) -> list[str]:
    """How the job is worth a restart; nothing where that is unknown."""
    return [] if word == "unknown" else field("restart", RESTART_WORDS[word])


def reports_brief(catalogue: Catalogue, signature: str) -> str:
    """What most settled reports of a signature turned out to be; empty for few."""
    from exporter.config import packs
    from exporter.core.catalogue.outcomes import outlook

    return outlook(packs.outcomes(catalogue, signature)).brief


def same_time(signature: str, text: str) -> str:
    """A kernel line of the same minute that may be about another job."""
    return f"{signature} on this node at the same time; nothing links it to this job: {clipped(text, 120)}"


def location(record: Mapping[str, Any], beside: Mapping[str, Any]) -> str:
    """The place of a record relative to another: the file is only named if it differs."""
    return f"line {record['line']}" if record["path"] == beside["path"] else f"{record['path']}:{record['line']}"


def _extent(record: Mapping[str, Any]) -> list[str]:
    parts = [counted(record["lines"], "line")]
    if len(record["ranks"]) > 1:
        parts.append(f"{len(record['ranks'])} ranks")
    if record["gpu"]:
        parts.append(f"GPU {record['gpu']}")
    if record["job"]:
        parts.append(f"job {record['job']['id']}")
    if record["time_source"] in STAMPED:
        parts.append(record["time"])
    return parts


def _without_cause(record: Mapping[str, Any], facts: str, packs: Sequence[str]) -> list[str]:
    if not _is_undecided(record):
        return field("cause", "unknown: no known cause fits")
    path = record["path"]
    if path == "-" or path != printable(path):
        return field("cause", "unknown: facts are missing; gpufault explain says which")
    at = f"{path}:{record['line']}"
    given = "".join(f" --signatures.dir {shlex.quote(folder)}" for folder in packs)
    given += "" if facts == "none" else f" --facts {shlex.quote(facts)}"
    command = f"gpufault explain {shlex.quote(at)}{given}"
    return [*field("cause", "unknown: facts are missing; to see which:"), f"{' ' * (INDENT + 4)}$ {command}"]


def _is_undecided(record: Mapping[str, Any]) -> bool:
    """Whether more facts may show the cause of an incident."""
    return record["root_cause"] == "unknown" and bool(record.get("undecided"))


def _because(evidence: Mapping[str, str]) -> str:
    return reason(evidence["what"], evidence["value"], evidence["why"])


def reason(subject: str, value: str, why: str, where: str = "") -> str:
    """One piece of evidence, cut to fit."""
    return evidence_text(subject, clipped(value, 140), why, where)


def _total(roots: Sequence[Mapping[str, Any]], summary: Summary) -> str:
    causes = len({r["root_cause"] for r in roots} - {"unknown"})
    text = (
        f"{counted(len(roots), 'incident')}, {counted(causes, 'known cause')}; "
        f"{counted(summary.lines_matched, 'matching line')} in {counted(summary.files, 'file')}, {_size(summary.bytes)}"
    )
    others = summary.unmatched - sum(r["lines"] for r in roots if r["signature"] == UNRECOGNISED)
    if others > 0:
        text += f"; {counted(others, 'more line looks', 'more lines look')} like an error that no signature names"
    if summary.unread:
        text += f"; {unread_text(summary)}, see stderr"
    return _wrapped(text + ".")


def unread_text(summary: Summary) -> str:
    """The number of files that a scan could not read completely."""
    return f"{counted(summary.unread, 'file')} could not be read completely"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width(), break_long_words=False, break_on_hyphens=False) + "\n"


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


HEADS = ("count", "jobs", "verdict", "first", "last", "root cause, or what happened where none is known")


def summary_table(roots: Sequence[Mapping[str, Any]], catalogue: Catalogue) -> str:
    """One row for each root cause (for unknown causes, each signature), the most frequent first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in roots:
        has_cause = record["root_cause"] in catalogue.root_causes
        key = (record["root_cause"], "") if has_cause else (UNKNOWN, record["signature"])
        groups.setdefault(key, []).append(record)
    years = {record["time"][:4] for record in roots if record["time_source"] in STAMPED}
    day = "%d %b" if len(years) == 1 else "%Y-%m"
    rows = [HEADS]
    for (cause, signature), records in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        jobs = {
            record["job"]["id"] if record["job"] else record["path"]
            for record in records
            if record["job"] or record["source"] == "job"  # a kernel log is not of one job
        }
        verdicts = {record["verdict"] for record in records}
        times = sorted(record["time"] for record in records if record["time_source"] in STAMPED)
        first, last = (
            (datetime.fromisoformat(time).strftime(day) for time in (times[0], times[-1])) if times else ("", "")
        )
        brief = reports_brief(catalogue, signature) if signature else ""
        title = f"unknown: {catalogue.signatures[signature].title}" if signature else catalogue.root_causes[cause].title
        title += f" ({brief})" if brief else ""
        verdict = verdicts.pop() if len(verdicts) == 1 else "unclear"
        rows.append((str(len(records)), str(len(jobs)), verdict, first, last, printable(title)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = (
        "  ".join(
            cell.rjust(size) if column < 2 else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


INDENT = 11


def width() -> int:
    """The columns to use: the terminal's width, limited for readability."""
    return max(60, min(100, shutil.get_terminal_size((80, 24)).columns))


def one_line(text: str) -> str:
    """A text on one line, without characters that control a terminal."""
    return printable(" ".join(text.split()))


def clipped(text: str, columns: int) -> str:
    """A text on one line, cut to a number of columns."""
    line = one_line(text)
    return line if len(line) <= columns else line[: columns - 1] + "…"


def field(name: str, text: str, *, breaks: bool = False) -> list[str]:
    """A labelled paragraph. Words too long for a line, such as references, stay whole unless `breaks`."""
    return textwrap.wrap(
        f"  {name:<{INDENT}}{one_line(text)}",
        width(),
        subsequent_indent=" " * (INDENT + 2),
        break_long_words=breaks,
        break_on_hyphens=False,
    )


def has_color(out: IO[str]) -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR is set."""
    return out.isatty() and "NO_COLOR" not in os.environ


def paint(text: str, code: str, color: bool) -> str:
    """Text in an ANSI colour; unchanged if colours are off."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
