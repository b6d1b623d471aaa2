"""A signature to begin with: a line of a log as a pack of its own, to be narrowed by who knows what prints it."""

from __future__ import annotations

import re
from collections.abc import Collection

from exporter.core.model import SourceKind

LONGEST = 200  # characters of a line that its pattern is made of; the format is rarely longer
_ID_WORDS = 4

# What another crash would have otherwise, and what stands for it. Numbers within names, as in gfx90a, stay.
_VARIES = re.compile(
    r"(?P<gpu>\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b)"
    r"|(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<path>(?<![\w/.])/[^\s:,;'\")]+)"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)*)"
)
_PATTERNS = {"hex": "0x[0-9a-fA-F]+", "path": "/[^\\s:,;'\")]+", "number": r"\d+"}
_GPU = r"[0-9a-f:]+\.[0-7]"
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")


def draft(text: str, source: SourceKind, taken: Collection[str]) -> str:
    """A pack, as YAML with remarks, of one signature that this text shows. `taken`: ids that there are."""
    pattern, gpu = _pattern(text)
    captures = [f"        captures: {{gpu: {_quoted(gpu)}}}"] if gpu else []
    lines = [
        "# yaml-language-server: $schema=gpufault-pack.schema.json",
        "pack: my_site",
        "signatures:",
        f"  - id: {_id(text, taken)}  # for ever: dashboards and alerts use it",
        "    title: What happened, in a few words",
        "    vendor: any  # amd | intel | nvidia | any",
        f"    layer: {'kernel' if source == 'kernel' else 'library'}  # kernel | runtime | library | framework | fabric | host",
        "    severity: error  # info | warning | error | critical",
        *(["    sources: [kernel]"] if source == "kernel" else []),
        "    patterns:  # as what prints it has its format: look it up, and name what varies, (?P<code>\\d+)",
        f"      - {_quoted(pattern)}",
        "    examples:  # one a wording",
        f"      - text: {_quoted(text)}",
        *captures,
        "    near_misses: []  # lines that look alike and are no crash: {text: '…', why: it goes on}",
        "    # remediation: What whoever is on call does first, in one or two sentences.",
        "    # references: ['https://…']",
    ]
    return "\n".join(lines) + "\n"


def _pattern(text: str) -> tuple[str, str]:
    """The pattern of a text, and the GPU's address in it; "" where there is none."""
    out, end, gpu = ["^"], 0, ""
    for found in _VARIES.finditer(text):
        if found.end() > LONGEST:
            break
        out.append(_literal(text[end : found.start()]))
        end = found.end()
        if found["gpu"] is None:
            out.append(_PATTERNS[str(found.lastgroup)] + (r"(?:\.\d+)*" if "." in (found["number"] or "") else ""))
        elif gpu:
            out.append(_GPU)
        else:
            gpu = found["gpu"]
            out.append(f"(?P<gpu>{_GPU})")
    out.append(_literal(text[end : max(end, LONGEST)]))
    return "".join(out), gpu


def _literal(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _id(text: str, taken: Collection[str]) -> str:
    words = re.findall(r"[a-z]{2,}", _VARIES.sub(" ", text.lower()))[:_ID_WORDS]
    name = "_".join(words)[:60]
    if not re.fullmatch("[a-z][a-z0-9_]{2,}", name):
        name = "new_signature"
    return name if name not in taken else f"{name}_2"


def _quoted(text: str) -> str:
    """A text as YAML, whose double quotes know the escapes that Python writes."""
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join("\\" + c if c in '"\\' else c if c.isprintable() else ascii(c)[1:-1] for c in text) + '"'
