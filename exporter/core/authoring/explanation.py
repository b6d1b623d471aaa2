"""What the catalogue says of a signature or root cause, for a page about it. Code stands in backticks."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from exporter.core.authoring.docs_pages import decided_by
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.outcomes import Outcomes, Outlook, outlook
from exporter.core.model import STRENGTHS, Domain

EXAMPLES = 3
LINES_OF_CAUSE = 5  # signatures of a cause whose reports are shown, those with most of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`kind` is signature or root cause; `related` are ids of the other kind; `blocks` texts of lines under a heading each.

    `outlooks`: by signature, what settled reports of its line turned out to be.
    """

    kind: str
    title: str
    verdict: str = "unclear"
    domain: Domain = "unknown"
    remediation: str = ""
    sentences: tuple[str, ...] = ()
    blocks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    related: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    outlooks: tuple[tuple[str, Outlook], ...] = ()


def explanation_of(
    catalogue: Catalogue, name: str, outcomes: Callable[[str], Outcomes] = lambda _: Outcomes()
) -> Explanation | None:
    """Of a root cause or signature by its id; None for an id that the catalogue does not have. outcomes: of a signature."""
    cause, signature = catalogue.root_causes.get(name), catalogue.signatures.get(name)
    if cause is not None:
        chosen = (
            f"Chosen when {_plain(decided_by(cause.when))}." if cause.when else "Never chosen: it has no conditions."
        )
        return Explanation(
            kind="root cause", title=cause.title, verdict=cause.verdict, domain=cause.domain,
            remediation=cause.remediation,
            sentences=(chosen, f"Evidence {cause.strength}: {STRENGTHS[cause.strength]}."),
            related=tuple(sorted(catalogue.matching(cause.signatures))), references=cause.references,
            outlooks=tuple(
                (signature, Outlook(sentences=shown.sentences))  # the cause is known: nothing is left to decide
                for signature, shown in _most_reported(sorted(catalogue.matching(cause.signatures)), outcomes)
            ),
        )  # fmt: skip
    if signature is None:
        return None
    logs = " and ".join("the kernel's log" if source == "kernel" else "jobs' logs" for source in signature.sources)
    blocks = (
        ("Lines that match", tuple(example.text for example in signature.examples[:EXAMPLES])),
        ("Lines that look alike and do not match", tuple(miss.text for miss in signature.near_misses[:EXAMPLES])),
        ("Patterns", signature.patterns[:EXAMPLES]),
    )
    return Explanation(
        kind="signature", title=signature.title, verdict=signature.usual_verdict, domain=signature.domain,
        remediation=signature.remediation,
        sentences=(f"Severity {signature.severity}; layer {signature.layer}; in {logs}.", *filter(None, [signature.undecided])),
        blocks=tuple((head, texts) for head, texts in blocks if texts),
        related=tuple(sorted(related.id for related in catalogue.causes_of(name))), references=signature.references,
        outlooks=tuple(_most_reported([name], outcomes)),
    )  # fmt: skip


def _most_reported(names: list[str], outcomes: Callable[[str], Outcomes]) -> Iterator[tuple[str, Outlook]]:
    """The signatures with most settled reports, and what these turned out to be."""
    reported = [(name, of_name) for name, of_name in zip(names, map(outcomes, names), strict=True) if of_name.count]
    for name, of_name in sorted(reported, key=lambda item: -item[1].count)[:LINES_OF_CAUSE]:
        yield name, outlook(of_name)


def _plain(text: str) -> str:
    """Markdown without its escapes."""
    return re.sub(r"\\([^\w\s])", r"\1", text)
