"""A state that goes on and is reported again and again is one incident: a hung task, a lost target, a dead processor."""

from __future__ import annotations

import pytest

from exporter.config import packs
from exporter.core.catalogue.pack_types import Signature
from exporter.core.diagnosis.incidents import condense
from exporter.core.diagnosis.open_incidents import OpenIncidents, Reported, group
from tests.support.matches import WINDOW, match

CATALOGUE = packs.load()
REPEATED = [s for s in CATALOGUE.signatures.values() if s.repeats_within]
GPU, OTHER_GPU = "0000:3b:00.0", "0000:81:00.0"


def test_the_kernel_repeats_what_goes_on() -> None:
    named = {s.id for s in REPEATED}
    assert {"hung_task", "lustre_connection_lost", "nfs_not_responding", "nv_xid_119_gsp_rpc_timeout"} <= named
    assert all("kernel" in s.sources and s.reach == "node" for s in REPEATED)


@pytest.mark.parametrize("signature", REPEATED, ids=lambda s: s.id)
def test_reports_of_one_state_are_one_incident(signature: Signature) -> None:
    silence = signature.repeats_within
    times = [0.0, silence - 1, 2 * silence - 2, 2 * silence, 3 * silence + 1]
    found = [match(signature.id, at, source="kernel", gpu=GPU) for at in times]
    other = match(signature.id, silence, source="kernel", gpu=OTHER_GPU)
    for order in (1, -1):
        incidents = group([*found, other][::order], WINDOW, CATALOGUE.repeats)
        assert [(i.gpu, i.lines) for i in incidents] == [(GPU, 4), (OTHER_GPU, 1), (GPU, 1)]
    assert len(group(found, WINDOW)) == 4


def test_it_stays_open_as_long() -> None:
    signature = next(s for s in REPEATED if s.id == "hung_task")
    found = OpenIncidents(WINDOW, repeats=CATALOGUE.repeats)
    for name in (signature.id, "kernel_oops"):
        (incident,) = condense([match(name, 0, source="kernel")], WINDOW)
        found.join(incident)
    for entry in list(found):
        found.mark_reported(entry, Reported("", "", "root", "", 1))
    read = next(iter(found)).incident.last_read
    assert [e.incident.signature for e in found.expired(read + WINDOW + 1)] == ["kernel_oops"]
    assert len(found.expired(read + signature.repeats_within + 1)) == 2
