"""Draft signatures: a pack made from the log lines of one error, for its author to refine."""

import re
from collections.abc import Collection, Sequence

from exporter.core.model import SourceKind

LONGEST = 200  # characters of the line that become its pattern; formats are rarely longer
_ID_WORDS = 4

# Text that varies between crashes, and its patterns. Numbers within names, as in gfx90a, are kept.
_VARIES = re.compile(
    r"(?P<gpu>\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b)"
    r"|(?P<pci>\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\b)"
    r"|(?P<uuid>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)"
    r"|(?P<time>\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<path>(?<![\w/.])/[^\s:,;'\")]+)"
    r"|(?P<signed>(?<=[=(: ])-\d+)"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)*)"
)
_PATTERNS = {
    "pci": "[0-9a-f:]+",
    "uuid": "[0-9a-f-]{36}",
    "time": r"[-\dT:.,Z+ ]+",
    "hex": "0x[0-9a-fA-F]+",
    "path": "/[^\\s:,;'\")]+",
    "signed": r"-?\d+",
    "number": r"\d+",
}
_GPU = r"[0-9a-f:]+\.[0-7]"
_PLACEHOLDER = re.compile(r"TODO(?::\s.*)?", re.DOTALL)
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")


def is_placeholder(text: str) -> bool:
    """Whether a text of a pack is one that its author has to replace."""
    return _PLACEHOLDER.fullmatch(text) is not None


def draft(texts: Sequence[str], source: SourceKind, taken: Collection[str]) -> str:
    """A YAML pack with comments and placeholders, with one signature for these texts of one error. `taken`: ids in use.

    Its examples are those of the texts that the pattern of the first one matches.
    """
    text = texts[0]
    pattern, gpu = _pattern_for(texts)
    examples = []
    for shown in texts:
        if match := re.search(pattern, shown):
            examples.append(f"      - text: {_quoted(shown)}")
            examples += [f"        captures: {{gpu: {_quoted(match['gpu'])}}}"] if gpu else []
    lines = [
        "# yaml-language-server: $schema=gpufault-pack.schema.json",
        "pack: my_site",
        "signatures:",
        f"  - id: {_id(text, taken)}  # permanent: dashboards and alerts use it",
        "    title: 'TODO: what happened, in a few words'",
        "    vendor: any  # amd | intel | nvidia | any",
        f"    layer: {'kernel' if source == 'kernel' else 'library'}  # kernel | runtime | library | framework | fabric | host",
        "    severity: error  # info | warning | error | critical",
        *(["    sources: [kernel]"] if source == "kernel" else []),
        "    patterns:  # use the format in the source code, and name what varies: (?P<code>\\d+)",
        f"      - {_quoted(pattern)}",
        "    examples:  # one for each wording",
        *examples,
        "    near_misses: []  # similar lines that are not crashes: {text: TODO, why: TODO}",
        "    remediation: 'TODO: what to do first, in one or two sentences'",
        "    # references: ['TODO: a link to the source code or a report']",
    ]
    return "\n".join(lines) + "\n"


def left_out(texts: Sequence[str]) -> list[str]:
    """The texts that the draft for these texts does not match."""
    pattern, _ = _pattern_for(texts)
    return [text for text in texts if not re.search(pattern, text)]


def _pattern_for(texts: Sequence[str]) -> tuple[str, str]:
    """The pattern of the first text, and its GPU address or "". Numbers within names vary if the other texts need it."""
    pattern, gpu = _pattern(texts[0])
    if not all(re.search(pattern, other) for other in texts):
        return _pattern(texts[0], in_names=True)
    return pattern, gpu


def _pattern(text: str, *, in_names: bool = False) -> tuple[str, str]:
    """The pattern of a text, and its GPU address or "". in_names: numbers within names vary too."""
    out, end, gpu = ["^"], 0, ""
    for match in _VARIES.finditer(text):
        if match.end() > LONGEST:
            break
        out.append(_literal(text[end : match.start()], in_names=in_names))
        end = match.end()
        if match["gpu"] is None:
            out.append(_PATTERNS[str(match.lastgroup)] + (r"(?:\.\d+)*" if "." in (match["number"] or "") else ""))
        elif gpu:
            out.append(_GPU)
        else:
            gpu = match["gpu"]
            out.append(f"(?P<gpu>{_GPU})")
    out.append(_literal(text[end : max(end, LONGEST)], in_names=in_names))
    return "".join(out), gpu


def _literal(text: str, *, in_names: bool) -> str:
    literal = _SPECIAL.sub(r"\\\1", text)
    return re.sub(r"\d+", r"\\d+", literal) if in_names else literal


def _id(text: str, taken: Collection[str]) -> str:
    words = re.findall(r"[a-z]{2,}", _VARIES.sub(" ", text.lower()))[:_ID_WORDS]
    name = "_".join(words)[:60]
    if not re.fullmatch("[a-z][a-z0-9_]{2,}", name):
        name = "new_signature"
    return name if name not in taken else f"{name}_2"


def _quoted(text: str) -> str:
    """A text as YAML; its double quotes accept Python's escapes."""
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join("\\" + c if c in '"\\' else c if c.isprintable() else ascii(c)[1:-1] for c in text) + '"'
