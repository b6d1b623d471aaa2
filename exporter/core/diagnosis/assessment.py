"""What a diagnosis is made of: conditions as they came out, causes as they were judged, and the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from exporter.core.catalogue.pack_types import RootCause
from exporter.core.model import Action, Incident, Severity, Truth, Verdict

STRENGTHS = "ABCDE"


@dataclass(frozen=True, slots=True)
class Leaf:
    """How one leaf condition came out, in words: what was looked at, what was asked of it, what it was, why it matters.

    `origin` is where the value was learnt (see Known); empty where nothing was known and an assumption stands in.
    """

    truth: Truth
    what: str
    asked: str
    value: str
    why: str
    origin: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """How one root cause came out for one incident: its leaves, by what they did to it."""

    cause: RootCause
    truth: Truth
    held: tuple[Leaf, ...]
    failed: tuple[Leaf, ...]
    undetermined: tuple[Leaf, ...]
    supports: tuple[Leaf, ...]
    against: tuple[Leaf, ...]
    ways: tuple[tuple[Leaf, ...], ...] = ()  # where undetermined: what would do, if it held together; shortest first

    @property
    def rank(self) -> tuple[int, int, str]:
        """Sorts the best first: most evidence, then best grade, then by name.

        What was only assumed is no evidence, and what is asked for twice is so once.
        """
        return self._rank_with(())

    def could_outrank(self, other: Assessment) -> bool:
        """Whether it would be the better cause, had the fewest missing facts that it needs the values that it needs."""
        return bool(self.ways) and self._rank_with(self.ways[0]) < other.rank

    def _rank_with(self, more: Iterable[Leaf]) -> tuple[int, int, str]:
        evidence = {(leaf.what, leaf.value) for leaf in (*self.held, *self.supports) if leaf.origin}
        evidence.update((leaf.what, leaf.value) for leaf in more)
        return (len(self.against) - len(evidence), STRENGTHS.index(self.cause.strength), self.cause.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One reason for a diagnosis, in words an SRE can check: what was looked at, its value, why it matters."""

    what: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What an incident is: root or cascade, and the cause that its evidence supports."""

    incident: Incident
    id: str
    role: Literal["root", "cascade", "context"]
    root_cause: str
    caused_by: str | None  # the id of the root incident
    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()
    remediation: str = ""
    references: tuple[str, ...] = ()
    severity: Severity = "error"  # of this incident: a vendor's table may say another than the signature
    action: Action | None = None  # what the vendor's table or the cause asks for, where it can be trusted
    considered: tuple[Assessment, ...] = ()  # every cause that can explain the incident, the best first
    same_time: tuple[Incident, ...] = ()  # kernel incidents of the same minute that nothing links to this job
