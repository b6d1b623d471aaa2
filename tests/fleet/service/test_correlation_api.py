"""The last correlation and its parts are as OpenAPI describes them; a real one, of a fleet with a planted cause."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from exporter.demo.simulator import FleetPlan, random_causes, simulate
from exporter.fleet.service.answers import PARTS
from exporter.fleet.service.refresh import SOURCE, Failure, FleetStatus
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.findings import Correlation
from tests.fleet.service.test_pages import NOW, View

PATHS = ("/api/v1/correlation", *(f"/api/v1/{part}" for part in PARTS))


@pytest.fixture(scope="module")
def found() -> Correlation:
    plan = FleetPlan(nodes=400, days=14, rate=60, seed=3, lemon=60, facts=6, signatures=4)
    fleet = simulate(random_causes(plan, 1, 20))
    return correlate(fleet.observed, fleet.window)


def schema(view: View, path: str, status: str) -> dict[str, Any]:
    described = json.loads(view.get("/api/v1/openapi.json")[1])
    return dict(described["paths"][path]["get"]["responses"][status]["content"]["application/json"]["schema"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "failed", [None, Failure(reason=SOURCE, message="no answer", time=NOW)], ids=["fine", "failed"]
)
def test_a_result_is_as_described(found: Correlation, path: str, failed: Failure | None) -> None:
    assert found.findings
    view = View(None, FleetStatus(result=found, result_time=NOW, complete_time=NOW, failure=failed))
    status, text, _ = view.get(path)
    assert status == 200
    Draft202012Validator(schema(view, path, "200")).validate(json.loads(text))


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_without_a_result_is_as_described(path: str) -> None:
    view = View(None, FleetStatus())
    status, text, _ = view.get(path)
    assert status == 503
    Draft202012Validator(schema(view, path, "503")).validate(json.loads(text))


def test_the_error_of_a_list_without_a_history_is_as_described() -> None:
    view = View(None, FleetStatus())
    status, text, _ = view.get("/api/v1/nodes")
    assert status == 503
    Draft202012Validator(schema(view, "/api/v1/nodes", "503")).validate(json.loads(text))
