"""Every fact in a condition has a source: a probe, a process or a log."""

from __future__ import annotations

import re

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import leaf_conditions
from exporter.core.facts import process
from exporter.probes import FACTS


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


def facts_in_conditions(catalogue: Catalogue) -> set[str]:
    return {leaf.fact for cause in catalogue.root_causes.values() for _, leaf in leaf_conditions(cause) if leaf.fact}


def test_every_fact_in_a_condition_has_a_source(catalogue: Catalogue) -> None:
    reported = {*FACTS, *process.FACTS, *(fact for log_fact in catalogue.log_facts for fact in log_fact.set)}
    required = facts_in_conditions(catalogue)
    variables = {fact for fact in required if fact.startswith("env.")}

    assert required - variables - reported == set()


def test_every_variable_in_a_condition_is_read_from_a_process(catalogue: Catalogue) -> None:
    required = {name.removeprefix("env.") for name in facts_in_conditions(catalogue) if name.startswith("env.")}
    environ = "\0".join(f"{name}=1" for name in required)

    assert required == {name.removeprefix("env.") for name in process.environment(environ)}
    assert re.search("HSA_XNACK", environ)
