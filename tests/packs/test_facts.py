"""What conditions ask for can be known: a probe, a process or a log tells it."""

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


def asked_of(catalogue: Catalogue) -> set[str]:
    return {leaf.fact for cause in catalogue.root_causes.values() for _, leaf in leaf_conditions(cause) if leaf.fact}


def test_every_fact_that_a_cause_asks_for_is_told_by_something(catalogue: Catalogue) -> None:
    told = {*FACTS, *process.FACTS, *(fact for log_fact in catalogue.log_facts for fact in log_fact.set)}
    asked = asked_of(catalogue)
    variables = {fact for fact in asked if fact.startswith("env.")}

    assert asked - variables - told == set()


def test_every_variable_that_a_cause_asks_for_is_read_of_a_process(catalogue: Catalogue) -> None:
    asked = {name.removeprefix("env.") for name in asked_of(catalogue) if name.startswith("env.")}
    environ = "\0".join(f"{name}=1" for name in asked)

    assert asked == {name.removeprefix("env.") for name in process.environment(environ)}
    assert re.search("HSA_XNACK", environ)
