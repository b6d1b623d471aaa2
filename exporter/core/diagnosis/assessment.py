"""The values of a diagnosis: evaluated conditions, assessed root causes and the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from exporter.core.catalogue.pack_types import RootCause
from exporter.core.model import Action, Domain, Incident, Severity, Truth, Verdict


@dataclass(frozen=True, slots=True)
class Leaf:
    """The result of one leaf condition, in words.

    `source` is where the value was read (see SourcedValue); empty if the value is unknown or assumed. `of_signature`: the
    line itself shows it, so it makes a cause no more specific.
    """

    truth: Truth
    subject: str
    requirement: str
    value: str
    reason: str
    source: str = ""
    line: int | None = None
    of_signature: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """The result of one root cause for one incident, with its leaves by their effect."""

    cause: RootCause
    truth: Truth
    held: tuple[Leaf, ...]
    failed: tuple[Leaf, ...]
    undetermined: tuple[Leaf, ...]
    supports: tuple[Leaf, ...]
    against: tuple[Leaf, ...]
    sufficient: tuple[tuple[Leaf, ...], ...] = ()  # sets of undetermined leaves that would prove it; shortest first

    @property
    def rank(self) -> tuple[int, str, str]:
        """A sort key, best cause first: most evidence, then best grade, then name.

        Assumptions are not evidence. Evidence that two conditions ask for counts once.
        """
        return self._rank_with(())

    def could_outrank(self, other: Assessment) -> bool:
        """Whether it would rank above another cause if the shortest sufficient set held."""
        return bool(self.sufficient) and self._rank_with(self.sufficient[0]) < other.rank

    def _evidence(self) -> Iterable[Leaf]:
        return (leaf for leaf in (*self.held, *self.supports) if leaf.source and not leaf.of_signature)

    def _rank_with(self, more: Iterable[Leaf]) -> tuple[int, str, str]:
        evidence = {(leaf.subject, leaf.value) for leaf in self._evidence()}
        evidence.update((leaf.subject, leaf.value) for leaf in more)
        return (len(self.against) - len(evidence), self.cause.strength, self.cause.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One reason for a diagnosis: what was checked, its value, and why it matters."""

    subject: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The role of an incident and the root cause that its evidence supports."""

    incident: Incident
    id: str
    role: Literal["root", "cascade", "context"]
    root_cause: str
    caused_by: str | None  # the id of the root incident
    verdict: Verdict
    domain: Domain = "unknown"  # where the fault lies
    evidence: tuple[Evidence, ...] = ()
    remediation: str = ""
    references: tuple[str, ...] = ()
    severity: Severity = "error"  # by the vendor's table, else by the signature
    action: Action | None = None  # requested by the vendor's table or the cause, if trusted
    considered: tuple[Assessment, ...] = ()  # every cause that can explain the incident; best first
    same_time: tuple[Incident, ...] = ()  # kernel incidents of the same minute without a link to this job
