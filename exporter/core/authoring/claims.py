"""What root causes claim in their titles and advise in their remediations, held against their conditions.

A claim is a word of a small table. It has to be named by the conditions, or by the signature that matched; a cause whose
conditions are alternatives has to name it in each.
"""

import re
from collections.abc import Iterable, Iterator

import regex

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Condition, RootCause, Signature, leaf_conditions
from exporter.core.patterns.syntax import FLAGS
from exporter.core.values import replace

# What a title says → what names it. Of parts joined by "or", one has to be named.
PARTS = {
    r"\b[Cc]ables?\b": r"(?i)cable|module",
    r"\b(?:[Oo]ptics|[Tt]ransceiver)\b": r"(?i)optic|transceiver|module",
    r"\bCPUs?\b": r"(?i)\bcpu|processor|machine check",
    r"\b(?:[Mm]emory module|DIMM|its memory)\b": r"(?i)\bdimm|memory",
    r"\b(?:its|lacks) power\b": r"(?i)power",
    r"\bPCIe link\b": r"(?i)pcie|\baer|\bdpc",
    r"\bthe disk|\bA disk\b": r"(?i)disk|nvme|block",
}
OTHERS = {
    r"\bfewer GPUs\b": r"\bgpus_lost\b|\bgpu_count\b|sees",
    r"\bprint(?:ed|s) no\b": r"(?!)",  # that it was not seen does not prove that it was not printed
    r"\bwhile (?:it|the job) (?:ran|runs)\b": r"(?i)was running|had been launched",
    r"\b[Aa]nother user\b|\b[Cc]oncurrent\b": r"(?i)owner|owned|concurrent|locked",
    r"\bnot need\b|\bneeds no\b": r"asks for no action",
    r"\bfaulty\b|\bbroken\b": r"(?i)faulty|broken|failed|bad|fw_failure|fixed in|releases",
}
HEDGE = re.compile(r",? (?:which may|mostly|as with|perhaps)\b")
BRANCH = re.compile(r"\b[Aa]fter (?P<number>Xid) \d+|\bIf the (?P<word>\w+) is\b")


def unnamed_claims(cause: RootCause, catalogue: Catalogue) -> Iterator[str]:
    """The words of a title that no condition and no title or pattern of a signature names, each with where."""
    if cause.when is None:
        return
    title = HEDGE.split(cause.title)[0]
    parts = {word: name for word, name in PARTS.items() if re.search(word, title)}
    claims = [{word: name} for word, name in OTHERS.items() if re.search(word, title)]
    if parts:
        claims.append(parts)
    elif cause.action == "replace":
        yield "its action is replace, and its title names no part"
    for claim in claims:
        words = [match[0] for word in claim if (match := re.search(word, title))]
        for leaves, signature in _alternatives(cause, catalogue):
            if not any(_search(name, _text(cause.when, leaves), _about(signature)) for name in claim.values()):
                yield f"its title says {' or '.join(map(repr, words))}, which {signature.id} and its conditions do not name"
                break


def _alternatives(cause: RootCause, catalogue: Catalogue) -> Iterator[tuple[list[Condition], Signature]]:
    """The conditions of each alternative with each signature that has the captures it asks for."""
    for branch in (cause.when.any or (cause.when,)) if cause.when else ():
        leaves = _leaves(cause, branch)
        wanted = {leaf.capture for leaf in leaves if leaf.capture and leaf.exists is not False}
        for name in sorted(catalogue.matching(cause.signatures)):
            signature = catalogue.signatures[name]
            if wanted <= groups(signature.patterns):
                yield leaves, signature


def decided_branches(cause: RootCause, catalogue: Catalogue) -> Iterator[str]:
    """The branches of a cause's advice that the captures of its signatures decide: make two causes of it."""
    captures = groups(p for s in catalogue.matching(cause.signatures) for p in catalogue.signatures[s].patterns)
    for branch in BRANCH.finditer(cause.remediation):
        if (branch["word"] or "xid") in captures:
            yield f"its remediation says {branch[0]!r}, which the line decides; make two causes of it"


def unexplained_captures(cause: RootCause) -> Iterator[str]:
    """The conditions that a capture merely exists, without saying what that proves: its value alone is a number or a name."""
    if cause.when:
        for loc, leaf in leaf_conditions(replace(cause, supported_by=(), against=())):
            if leaf.capture and leaf.exists and not leaf.why and "not" not in loc:
                yield f"the evidence would be a bare {leaf.capture}; say in `why` what it proves"


def groups(patterns: Iterable[str]) -> set[str]:
    """The captures of patterns; a group `emitter__torch` gives `emitter`."""
    return {name.partition("__")[0] for p in patterns for name in regex.compile(p, FLAGS).groupindex}


def _leaves(cause: RootCause, condition: Condition) -> list[Condition]:
    return [leaf for _, leaf in leaf_conditions(replace(cause, when=condition, supported_by=(), against=()))]


def _search(pattern: str, *texts: str) -> bool:
    return any(re.search(pattern, text) for text in texts)


def _text(branch: Condition, leaves: list[Condition]) -> str:
    """What a condition and its leaves name, in one text."""
    named = [branch.why]
    for leaf in leaves:
        values = (leaf.fact, leaf.capture, leaf.match, leaf.text, leaf.matches, leaf.equals, *(leaf.in_ or ()))
        named += [leaf.why, *(value for value in values if value)]
    return "\n".join(named)


def _about(signature: Signature) -> str:
    return "\n".join((signature.id, signature.title, *signature.patterns))
