"""The schema of a settled report of a crash. Facts only: no sentence of a report. `outcomes` says what they show."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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


WORDS = re.compile(r"[\w./@:+-]*\w")  # a path, a host, an address or a version is one
_NUMBER = re.compile(r"v?\d{1,4}(?:\.\d[\w+-]*)*")  # or a version; a job's is longer


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


def unusual_words(report: SettledReport, usual: Collection[str]) -> list[str]:
    """The words of a report that may be names, of a host, user, job or path: those that are not among the usual ones."""
    versions = (text for pair in (*report.software.items(), *report.fixed_in.items()) for text in pair)
    texts = (report.cause, *report.gpu, *report.circumstances, *versions)
    words = dict.fromkeys(word for text in texts for word in WORDS.findall(text))
    return [word for word in words if word.lower() not in usual and not _NUMBER.fullmatch(word)]
