"""Settled public reports of crashes, and what the reports of a line turned out to be. Facts only: no sentence of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from exporter.core.model import Domain, Vendor
from exporter.core.values import dataclass, field

if TYPE_CHECKING:
    from exporter.core.catalogue.constraints import Id, about

Settled = Literal[
    "fix merged",
    "fixed by update",
    "fixed by workaround",
    "explained by maintainer",
    "own mistake",
    "hardware replaced",
]
NAMED_FIXES = 3
LEAST = 4  # reports: fewer say what happened, not what is usual


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledReport:
    """One report of a crash whose end is known."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (as pydantic reads it)

    address: Annotated[str, about("where it was read", pattern=r"^https://\S{5,300}$")]
    signature: Annotated[Id, about("the signature whose line it shows")]
    date: Annotated[str, about("of its beginning, or of the first comment that was read", pattern=r"^\d{4}-\d\d-\d\d$")]
    domain: Annotated[Domain, about("where the fault lay")]
    cause: Annotated[str, about("what it was, in own words", min_length=5, max_length=160)]
    settled: Annotated[Settled, about("how its end is known")]
    vendor: Annotated[Vendor, about("of the GPU")] = "any"
    gpu: Annotated[tuple[str, ...], about("models, as the report has them")] = ()
    software: Annotated[Mapping[str, str], about("versions that crashed")] = field(default_factory=dict)
    fixed_in: Annotated[Mapping[str, str], about("versions that do not")] = field(default_factory=dict)
    circumstances: Annotated[tuple[str, ...], about("settings and sizes that mattered")] = ()

    def check(self) -> None:
        if self.domain == "unknown":
            raise ValueError("domain: a settled report has one; leave out a report without an end")


def outcome(reports: Sequence[SettledReport]) -> str:
    """How often the fault lay where, and the newest versions that fixed it: `14 settled reports of this line: library 9, …`.

    Empty where there are too few to tell anything.
    """
    if len(reports) < LEAST:
        return ""
    domains = Counter(report.domain for report in reports).most_common()
    fixed: dict[str, str] = {}
    for report in sorted(reports, key=lambda report: report.date, reverse=True):
        for name, version in report.fixed_in.items():
            fixed.setdefault(name, version)
    names = ", ".join(f"{name} {version}" for name, version in list(fixed.items())[:NAMED_FIXES])
    counts = ", ".join(f"{domain} {count}" for domain, count in domains)
    return f"{len(reports)} settled reports of this line: {counts}" + (f"; fixed in {names}" if names else "")


def examples(reports: Sequence[SettledReport], at_most: int = 3) -> Iterator[SettledReport]:
    """The newest report of each of the most frequent domains."""
    for domain, _ in Counter(report.domain for report in reports).most_common(at_most):
        yield max((report for report in reports if report.domain == domain), key=lambda report: report.date)
