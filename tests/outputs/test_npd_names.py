"""The series that node-problem-detector has, of GPUs: off unless asked for, at 0 from the start."""

from __future__ import annotations

from collections.abc import Callable

from exporter.config import packs
from exporter.core.diagnosis.node_faults import Fault
from exporter.core.model import Moment
from exporter.outputs.npd import camel_case, problem_counter, problem_gauge
from tests.e2e.conftest import Node, eventually, make_node

__all__ = ["make_node"]

CATALOGUE = packs.load()
SIGNATURE, CAUSE = next(
    (signature, cause.id)
    for signature in CATALOGUE.signatures
    for cause in CATALOGUE.causes_of(signature)
    if cause.needs_operator
)
FAULT = Fault(
    time=50.0, last_time=100.0, count=1, signature="s", root_cause=CAUSE, title="t", gpu=None, job=None, remediation="r",
    incident="i", boot="this", boot_seconds=1.0,
)  # fmt: skip
NOW = Moment(time=100.0, boot="this", boot_seconds=1.0)


def test_a_reason_is_spelled_as_kubernetes_spells_them() -> None:
    assert camel_case("nv_xid_79_fell_off_bus") == "NvXid79FellOffBus"


def test_a_counter_adds_up_the_root_causes_of_a_signature() -> None:
    incidents = {("a_b", "unknown"): 2.0, ("a_b", "x"): 3.0, ("c", "unknown"): 0.0}
    assert problem_counter(incidents) == {("AB",): 5.0, ("C",): 0.0}


def test_a_gauge_is_one_for_what_an_operator_has_to_mend() -> None:
    incidents = {(SIGNATURE, "unknown"): 4.0}
    series = ("GPUFault", camel_case(CAUSE))
    assert problem_gauge(incidents, [], CATALOGUE)[series] == 0.0
    assert problem_gauge(incidents, [FAULT], CATALOGUE)[series] == 1.0
    assert problem_gauge({}, [FAULT], CATALOGUE) == {series: 1.0}


def test_the_daemon_shows_them_where_they_are_asked_for(make_node: Callable[..., Node]) -> None:
    node = make_node(outputs={"npd": True})
    node.start()
    assert node.value('problem_counter{reason="E2eCrash"}') == 0.0
    assert node.value(f'problem_gauge{{reason="{camel_case(CAUSE)}",type="GPUFault"}}') == 0.0
    (node.logs / "a.log").write_text("e2e crash seq=1 of a\n")
    eventually(lambda: node.value('problem_counter{reason="E2eCrash"}') == 1.0 or None)
    assert "# TYPE problem_counter untyped" in node.get("/metrics")
    node.stop()
    other = make_node()
    other.start()
    assert "problem_" not in other.get("/metrics")
