"""The form of a case: one root cause, a crash in which it is chosen, and what becomes of it where things differ.

    a_cause:
      incident: a_signature         # of the root incident
      job: |                        # the job's log, the kernel's, or both; where both, with stamps, which bring them together
      kernel: |
      facts: {name: value}
      evidence: [fact name, line of a_signature]          # what the record cites, in its order
      without: {name: another_cause}                      # the cause is undetermined when this fact is not known
      nearly:                                             # the cause is not chosen, since something else is the case
        - {facts: {name: value}, instead: another_cause}
        - {change: {a text of a log: another}, instead: unknown}

Logs are written for these tests in the forms of their emitters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A crash that differs from a case's, and the cause that is chosen in it."""

    name: str
    incident: str
    job: str
    kernel: str
    facts: Mapping[str, str]
    instead: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A crash in which a root cause is chosen."""

    cause: str
    incident: str
    job: str = ""
    kernel: str = ""
    facts: Mapping[str, str]
    evidence: list[str]
    without: Mapping[str, str]
    nearly: tuple[Variant, ...] = ()

    def __str__(self) -> str:
        return self.cause

    def lacking(self, fact: str) -> Variant:
        """The same crash on a node of which one fact is not known."""
        facts = {name: value for name, value in self.facts.items() if name != fact}
        assert facts != self.facts, f"{fact} is not among the facts of {self.cause}"
        return self._variant(f"{self.cause} without {fact}", facts=facts, instead=self.without[fact])

    def _variant(self, name: str, **what: Any) -> Variant:
        rest = {"incident": self.incident, "job": self.job, "kernel": self.kernel, "facts": self.facts}
        return Variant(name=name, **{**rest, **what})


def cases(folder: Path) -> dict[str, Case]:
    """All cases of a folder by their causes."""
    found: dict[str, Case] = {}
    for path in sorted(folder.glob("*.yaml")):
        for cause, data in yaml.safe_load(path.read_text()).items():
            assert cause not in found, f"{path.name}: a second case of {cause}"
            found[cause] = _case(cause, data)
    return found


def _case(cause: str, data: dict[str, Any]) -> Case:
    nearly = data.pop("nearly", ())
    case = Case(cause=cause, **{"facts": {}, "evidence": [], "without": {}, **data})
    assert all(isinstance(value, str) for value in case.facts.values()), f"{cause}: facts are texts; quote them"
    return replace(case, nearly=tuple(_nearly(case, number, what) for number, what in enumerate(nearly, 1)))


def _nearly(case: Case, number: int, what: dict[str, Any]) -> Variant:
    changes = what.pop("change", {})
    what["facts"] = {**case.facts, **what.get("facts", {})}
    logs = {"job": _changed(case.job, changes), "kernel": _changed(case.kernel, changes)}
    unused = [old for old in changes if old not in case.job + case.kernel]
    assert not unused, f"{case.cause}: not in its logs: {unused}"
    return case._variant(f"{case.cause} nearly {number}", **logs, **what)


def _changed(log: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        log = log.replace(old, new)
    return log
