"""What the catalogue says of how a signature or root cause is recognised, for its page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup, escape

from exporter.core.authoring.docs_pages import STRENGTHS, decided_by
from exporter.core.catalogue.loader import Catalogue
from exporter.core.text.printable import printable
from exporter.fleet.service.html import multiline

EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Sentences, and blocks of text under a heading each."""

    sentences: tuple[Markup, ...]
    blocks: tuple[tuple[str, tuple[Markup, ...]], ...]


def explanation_of(catalogue: Catalogue, name: str) -> Explanation | None:
    """None for an id that the catalogue does not have."""
    cause, signature = catalogue.root_causes.get(name), catalogue.signatures.get(name)
    if cause is not None:
        chosen = f"Chosen when {decided_by(cause.when)}." if cause.when else "Never chosen: it has no conditions."
        strength = f"Evidence {cause.strength}: {STRENGTHS[cause.strength]}."
        return Explanation(sentences=(_from_markdown(chosen), _from_markdown(strength)), blocks=())
    if signature is not None:
        examples = tuple(multiline(each.text) for each in signature.examples[:EXAMPLES])
        near = tuple(multiline(each.text) for each in signature.near_misses[:EXAMPLES])
        blocks = [("Lines that match", examples), ("Lines that look alike and do not match", near),
                  ("Patterns", tuple(multiline(each) for each in signature.patterns[:EXAMPLES]))]  # fmt: skip
        logs = " and ".join("the kernel's log" if each == "kernel" else "jobs' logs" for each in signature.sources)
        told = f"Severity {signature.severity}; layer {signature.layer}; in {logs}."
        return Explanation(sentences=(escape(told),), blocks=tuple((head, texts) for head, texts in blocks if texts))
    return None


def _from_markdown(text: str) -> Markup:
    """Code in backticks as elements; other signs of Markdown are dropped."""
    parts = re.split(r"`([^`]*)`", re.sub(r"\\([^\w\s])", r"\1", printable(text)))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )
