"""Incidents as text for people: what, where, why, what to do. One place for the words that an SRE reads at 3 a.m."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.core.catalogue import Catalogue
    from exporter.scan.run import Summary

WIDTH = 100
_COLORS = {"critical": "1;31", "error": "31", "warning": "33", "info": "36"}


def scan_text(
    records: Sequence[Mapping[str, Any]], summary: Summary, catalogue: Catalogue, *, facts_known: bool, color: bool
) -> str:
    """The result of a scan."""
    cascades: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record["caused_by"]:
            cascades.setdefault(record["caused_by"], []).append(record)
    roots = [r for r in records if r["role"] == "root"]
    out = [incident_text(r, catalogue, cascades.get(r["id"], ()), color=color) for r in roots]
    out.append(_total(roots, summary))
    unexplained = [r for r in roots if r["root_cause"] == "unknown"]
    if unexplained and not facts_known:
        out.append("Causes depend on the node's facts: run it there with --facts host, or give --facts FILE.\n")
    return "\n".join(out)


def incident_text(
    record: Mapping[str, Any], catalogue: Catalogue, cascades: Sequence[Mapping[str, Any]] = (), *, color: bool = False
) -> str:
    """One incident with what it dragged along."""
    signature = catalogue.signatures[record["signature"]]
    head = f"{record['path']}:{record['line']}: {signature.title}"
    lines = [_paint(head, _COLORS[record["severity"]], color), f"  {record['text'].strip()[: WIDTH * 2]}"]
    lines += _field("signature", " · ".join([record["signature"], *_extent(record)]))
    cause = catalogue.root_causes.get(record["root_cause"])
    named = f"{record['root_cause']} ({record['verdict']})" if record["root_cause"] != "unknown" else "unknown"
    lines += _field("cause", f"{named}: {cause.title}" if cause else _without_cause(record))
    lines += [line for e in record["evidence"] for line in _field("because", _because(e))]
    lines += _field("do", record["remediation"]) if record["remediation"] else []
    if cascades:
        names = ", ".join(f"{c['signature']} ({c['path']}:{c['line']})" for c in cascades[:6])
        lines += _field("then", names + (f" and {len(cascades) - 6} more" if len(cascades) > 6 else ""))
    return "\n".join(lines) + "\n"


def _extent(record: Mapping[str, Any]) -> list[str]:
    parts = [f"{record['lines']} line{'s' * (record['lines'] != 1)}"]
    if len(record["ranks"]) > 1:
        parts.append(f"{len(record['ranks'])} ranks")
    if record["gpu"]:
        parts.append(f"GPU {record['gpu']}")
    if record["job"]:
        parts.append(f"job {record['job']['id']}")
    if record["time_source"] == "log":
        parts.append(record["time"])
    return parts


def _without_cause(record: Mapping[str, Any]) -> str:
    if record["root_cause"] == "peer_failure":
        return "peer_failure: a consequence of a fault that these logs do not show; look at the other ranks and nodes"
    return "unknown: no cause in the catalogue has all its conditions met; `gpufault explain` shows what is missing"


def _because(evidence: Mapping[str, str]) -> str:
    kind, _, name = evidence["what"].partition(" ")
    if kind == "line":
        told = f"{name.removeprefix('of ')}: \u201c{evidence['value'].strip()}\u201d"
    else:
        told = f"{name} is {evidence['value']}" if evidence["value"] else evidence["what"]
    return told + (f" \u2013 {evidence['why']}" if evidence["why"] else "")


def _field(name: str, text: str) -> list[str]:
    indent = " " * 13
    return textwrap.wrap(
        f"  {name:<11}{' '.join(text.split())}",
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _total(roots: Sequence[Mapping[str, Any]], summary: Summary) -> str:
    causes = len({r["root_cause"] for r in roots} - {"unknown"})
    text = (
        f"{len(roots)} incident{'s' * (len(roots) != 1)}, {causes} known cause{'s' * (causes != 1)}; "
        f"{summary.lines_matched} matching lines in {summary.files} file{'s' * (summary.files != 1)}, {_size(summary.bytes)}"
    )
    if summary.unmatched:
        text += f"; {summary.unmatched} lines look like a crash that no signature knows"
    if summary.unread:
        text += f"; {len(summary.unread)} log{'s' * (len(summary.unread) != 1)} could not be read whole (see stderr)"
    return text + ".\n"


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


def _paint(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
