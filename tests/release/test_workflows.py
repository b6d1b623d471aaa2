"""GitHub's workflows: what they run is fixed, and no step that builds could publish."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github/workflows").glob("*.yml"))
PUBLISHING = {"publish"}  # jobs of release.yml that may write anything


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", "".join(action))] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_have_the_least_permissions_and_an_end(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120
        written = {scope for scope, access in job.get("permissions", {}).items() if access == "write"}
        allowed = {"security-events", "id-token"} if path.stem == "scorecard" else set()
        assert name in PUBLISHING or written <= allowed


def test_no_job_that_builds_a_release_sees_a_secret() -> None:
    for name, job in read(next(path for path in WORKFLOWS if path.stem == "release"))["jobs"].items():
        text = yaml.safe_dump(job)
        assert ("secrets." in text or "github.token" in text) == (name in PUBLISHING)
        if name not in PUBLISHING:
            checkout = next(step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout"))
            assert checkout["with"] == {"persist-credentials": False}
