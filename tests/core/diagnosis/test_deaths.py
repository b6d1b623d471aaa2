"""What a signature's `death` says of an incident, for every signature that has one."""

from __future__ import annotations

import pytest

from exporter.config import packs
from exporter.core.diagnosis.deaths import ends_process, explains_job_end, may_be_survived, reports_signal
from exporter.core.diagnosis.incidents import condense
from exporter.core.model import Incident
from tests.support.matches import WINDOW, match

CATALOGUE = packs.load()
DEATHS = {s.id: s.death for s in CATALOGUE.signatures.values() if s.death}


def incident(signature: str, **captures: str) -> Incident:
    is_of_kernel = CATALOGUE.signatures[signature].sources == ("kernel",)
    (found,) = condense([match(signature, source="kernel" if is_of_kernel else "job", captures=captures)], WINDOW)
    return found


@pytest.mark.parametrize("signature", DEATHS)
def test_exit_code_0_does_not_undo_the_death_of_a_process(signature: str) -> None:
    death = DEATHS[signature]
    globs = {name: values.split("|")[0] for name, values in death.where.items()}
    captures = {name: glob.replace("[0-9]", "9").replace("*", "9") for name, glob in globs.items()}
    died = incident(signature, **captures)
    assert ends_process(died, CATALOGUE) == (death.kind in ("process", "signal"))
    if death.where:
        assert not ends_process(incident(signature), CATALOGUE)
    assert not (ends_process(died, CATALOGUE) and may_be_survived(died, CATALOGUE))
    assert reports_signal(died, CATALOGUE) == (death.kind in ("signal", "stopped"))
    if CATALOGUE.severity_of(died) == "info":
        assert explains_job_end(died, CATALOGUE) == (death.kind == "scheduler")


def test_each_kind_of_death_is_reported_by_a_signature() -> None:
    assert {death.kind for death in DEATHS.values()} == {"process", "signal", "stopped", "exit", "scheduler"}


@pytest.mark.parametrize(("kind", "ends"), [("python", False), ("c++", True), ("signal", True), ("runtime", False)])
def test_an_unrecognised_crash_is_a_death_by_its_kind(kind: str, ends: bool) -> None:
    assert ends_process(incident("unrecognised_crash", kind=kind), CATALOGUE) == ends


@pytest.mark.parametrize(("signature", "explains"), [("torch_oom", True), ("srun_task_exit", False)])
def test_a_launchers_report_that_a_rank_has_exited_explains_nothing(signature: str, explains: bool) -> None:
    assert explains_job_end(incident(signature), CATALOGUE) == explains
