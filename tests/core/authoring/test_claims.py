"""Titles and advice that say more than the conditions of a cause prove; the examples are former texts of built-in causes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exporter.config import packs
from exporter.core.authoring.claims import decided_branches, unexplained_captures, unnamed_claims
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Condition

KERNEL = Condition(reported_by="kernel", why="the driver of the adapter reported it")
TITLES: dict[str, tuple[str, dict[str, Any]]] = {
    "'cable' or 'optics'": (
        "nic_or_cable_fault", {"title": "A NIC, its cable or its optics are unfit", "when": KERNEL},
    ),
    "'faulty'": ("nic_or_cable_fault", {"title": "A NIC is faulty", "when": KERNEL}),
    "'CPU' or 'memory module'": (
        "pcie_error_in_firmware_record",
        {
            "title": "A CPU or a memory module failed",
            "when": Condition(capture="severity", equals="fatal", why="the firmware reports it"),
        },
    ),
    "'while it ran'": (
        "node_not_reached_at_launch",
        {
            "title": "A node failed while it ran the job",
            "when": Condition(capture="node", exists=True, why="the launcher names the node"),
        },
    ),
    "'printed no'": ("crash_without_message", {"title": "A signal killed the program, which printed no reason"}),
    "'fewer GPUs'": ("gpu_without_driver", {"title": "The node has fewer GPUs than the day before"}),
    "'its power'": ("gpu_lost_from_pcie", {"title": "A GPU lost its power"}),
    "'not need'": (
        "nvlink_error_without_reset",
        {
            "title": "An NVLink reported an error that does not need a reset",
            "when": Condition(capture="unit", exists=True, why="the vendor's table calls it nonfatal"),
        },
    ),
    "'another user'": ("miopen_cache_of_another_user", {"title": "MIOpen's cache in /tmp belongs to another user"}),
    "'Concurrent'": ("miopen_database_corrupted", {"title": "Concurrent jobs corrupted MIOpen's database"}),
    "action is replace": ("nic_stopped_answering", {"action": "replace"}),
}  # fmt: skip
ADVICE = {
    "gpu_memory_uncorrectable_ecc": "Drain the node and reset the GPU; after Xid 94, restarting the job is enough.",
    "crash_without_message": "Allow a core dump. If the signal is Killed, look for the OOM killer.",
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


@pytest.mark.parametrize("claim", TITLES)
def test_what_no_condition_names_is_reported(claim: str, catalogue: Catalogue) -> None:
    name, former = TITLES[claim]
    cause = catalogue.root_causes[name]
    assert list(unnamed_claims(cause, catalogue)) == []
    [problem] = unnamed_claims(replace(cause, **former), catalogue)
    assert claim in problem


@pytest.mark.parametrize("name", ADVICE)
def test_a_branch_that_the_line_decides_is_reported(name: str, catalogue: Catalogue) -> None:
    cause = catalogue.root_causes[name]
    assert list(decided_branches(cause, catalogue)) == []
    [problem] = decided_branches(replace(cause, remediation=ADVICE[name]), catalogue)
    assert "two causes" in problem


def test_a_bare_number_is_no_evidence(catalogue: Catalogue) -> None:
    cause = replace(catalogue.root_causes["shared_memory_too_small"], when=Condition(capture="bytes", exists=True))
    [problem] = unexplained_captures(cause)
    assert "bare bytes" in problem


def test_no_builtin_cause_claims_more_than_it_proves(catalogue: Catalogue) -> None:
    found = {
        cause.id: [*unnamed_claims(cause, catalogue), *decided_branches(cause, catalogue), *unexplained_captures(cause)]
        for cause in catalogue.root_causes.values()
    }
    assert {name: problems for name, problems in found.items() if problems} == {}
