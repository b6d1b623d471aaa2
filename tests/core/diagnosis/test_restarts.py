"""Whether a job is worth a restart: by domain, verdict and action of one incident, and over the incidents of a job."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from exporter.config import packs
from exporter.core.diagnosis.record_schema import IncidentRecord
from exporter.core.diagnosis.restarts import restart_advice, restart_of
from exporter.core.model import OPERATOR_ACTIONS, Action, Domain, Restart, Verdict
from tests.core.diagnosis.test_domains import diagnosed
from tests.support.matches import catalogue_of, match

PACK = """
signatures:
  - {id: said_nothing, patterns: ['cccc']}
  - {id: cancelled, patterns: ['eeee'], restart: never}
"""
OF_JOB = ("mismatch", "configuration", "resources", "program")


def said(domain: Domain, verdict: Verdict, action: Action | None, signature: str = "said_nothing") -> Restart:
    first = replace(diagnosed(match("said_nothing"))["said_nothing"], domain=domain, verdict=verdict, action=action)
    return restart_of(replace(first, incident=replace(first.incident, signature=signature)), catalogue_of(PACK))


@pytest.mark.parametrize("domain", get_args(Domain))
@pytest.mark.parametrize("verdict", get_args(Verdict))
@pytest.mark.parametrize("action", [None, *get_args(Action)])
def test_each_domain_verdict_and_action(domain: Domain, verdict: Verdict, action: Action | None) -> None:
    restart = said(domain, verdict, action)
    if action in OPERATOR_ACTIONS:
        assert restart == "elsewhere"  # an operator has to do something about this node
    elif domain in ("storage", "scheduler"):
        assert restart == "as_is"
    elif domain in ("hardware", "driver", "network"):
        assert restart == ("as_is" if action == "restart_job" else "elsewhere")
    elif domain == "library":
        assert restart == "after_change"
    elif domain in OF_JOB:  # its own settings, or those of the node
        assert restart == ("elsewhere" if verdict == "infrastructure" else "after_change")
    else:
        expected = {"infrastructure": "elsewhere", "workload": "after_change", "unclear": "unknown"}
        assert restart == expected[verdict]


def test_a_pack_says_it_where_the_domain_says_something_else() -> None:
    assert said("scheduler", "unclear", None, signature="cancelled") == "never"


def test_no_shipped_cause_sends_a_job_back_to_a_node_that_an_operator_has_to_repair() -> None:
    causes = packs.load().root_causes.values()
    assert [c.id for c in causes if c.needs_operator and c.restart not in (None, "elsewhere")] == []
    assert {c.id for c in causes if c.restart == "never"} == {"cancelled_by_somebody"}


def test_a_host_that_was_not_reached_condemns_no_node() -> None:
    assert packs.load().root_causes["host_not_reached"].restart == "unknown"


def incident(node: str, restart: str | None, **more: Any) -> IncidentRecord:
    given = {"time": 1.7e9, "node": node, "signature": "s", "restart": restart, "role": "root", **more}
    return IncidentRecord.model_validate(given)


@pytest.mark.parametrize(
    ("incidents", "restart", "avoid"),
    [
        ([], "unknown", ()),
        ([("a", "as_is")], "as_is", ()),
        ([("a", "as_is"), ("b", "unknown")], "unknown", ()),
        ([("b", "elsewhere"), ("a", "elsewhere"), ("c", "unknown")], "elsewhere", ("a", "b")),
        ([("a", "elsewhere"), ("b", "after_change")], "after_change", ("a",)),
        ([("a", "after_change"), ("b", "never")], "never", ()),
        ([("a", None)], "unknown", ()),  # of a daemon before this version
        ([("a", "at_once")], "unknown", ()),  # of a later one
    ],
)
def test_what_crashes_again_anywhere_decides_first(
    incidents: list[tuple[str, str | None]], restart: str, avoid: tuple[str, ...]
) -> None:
    advice = restart_advice(incident(node, said) for node, said in incidents)
    assert (advice.restart, advice.avoid) == (restart, avoid)


def test_consequences_do_not_count() -> None:
    root, consequence = incident("a", "elsewhere"), incident("b", "after_change", role="cascade")
    assert restart_advice([root, consequence]).restart == "elsewhere"
    assert str(restart_advice([root, consequence])) == "restart on other nodes; avoid a"


def test_a_sentence_names_a_few_nodes() -> None:
    text = str(restart_advice(incident(f"n{n:02}", "elsewhere") for n in range(20)))
    assert text == "restart on other nodes; avoid n00, n01, n02, n03, n04, n05, n06, n07 and 12 more"
