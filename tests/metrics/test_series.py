"""Which series a node shows before anything has happened: what can occur there, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.config import packs
from exporter.config.node import Config
from exporter.core.facts.gpus import Gpu
from exporter.core.model import Vendor
from exporter.metrics.series import possible_series
from exporter.probes import Gathered
from tests.support.daemons import finish, quiet_daemon
from tests.support.matches import catalogue_of

CATALOGUE = catalogue_of(r"""
signatures:
  - {id: amd_fault, vendor: amd, sources: [kernel], patterns: ['amdgpu fault']}
  - {id: amd_reset, vendor: amd, sources: [kernel], patterns: ['amdgpu reset'], follows: [amd_fault]}
  - {id: amd_error, vendor: amd, sources: [job], patterns: ['HIP error']}
  - {id: nv_error, vendor: nvidia, sources: [job], patterns: ['CUDA error']}
  - {id: amd_warning, vendor: amd, severity: warning, sources: [kernel], patterns: ['amdgpu warning']}
  - {id: amd_note, vendor: amd, role: context, sources: [kernel], patterns: ['amdgpu note']}
root_causes:
  - {id: old_driver, signatures: [amd_fault], when: {fact: driver_version, exists: true}}
  - {id: old_cuda, signatures: [nv_error], when: {fact: cuda_version, exists: true}}
""")


def labels_of(metric: str, series: list[tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    return [labels for name, labels in series if name == metric]


def test_a_signature_of_a_vendor_that_is_there_has_one_pair_at_first() -> None:
    series = list(possible_series(CATALOGUE, {"job", "kernel"}, {"amd"}))
    assert labels_of("gpufault_incidents_total", series) == [
        ("amd_fault", "unknown"),
        ("amd_reset", "unknown"),
        ("amd_error", "unknown"),
    ]


def test_where_no_gpu_was_found_every_vendors_can_occur() -> None:
    series = list(possible_series(CATALOGUE, {"job"}, set()))
    shown = labels_of("gpufault_incidents_total", series)
    assert shown == [("amd_error", "unknown"), ("nv_error", "unknown")]


@pytest.mark.parametrize(("vendors", "most"), [({"amd"}, 226), ({"intel"}, 226), ({"nvidia"}, 226), (set(), 350)])
def test_of_the_built_in_packs_a_node_shows_few(vendors: set[Vendor], most: int) -> None:
    """So that a node with eight GPUs of one vendor has at most 400 series of all metrics, one without a GPU 450."""
    assert len(list(possible_series(packs.load([]), {"job", "kernel"}, vendors))) <= most


@pytest.fixture
def shown(tmp_path: Path) -> Callable[[dict[str, str]], dict[str, set[str]]]:
    def show(facts: dict[str, str]) -> dict[str, set[str]]:
        """The first label of each series of a node with an AMD GPU, by metric."""
        config = Config.model_validate(
            {"state_dir": str(tmp_path), "sources": [{"kind": "kmsg", "mode": "file", "path": "/dev/null"}]}
        )
        gathered = Gathered(facts=facts, failed={}, gpus=(Gpu(pci="0000:c1:00.0", vendor="amd"),))
        daemon = quiet_daemon(config, CATALOGUE, gathered)
        families = {
            family.name: {labels[0] for labels in family.samples if labels} for family in daemon.snapshot().families
        }
        finish(daemon)
        return families

    return show


def test_a_node_describes_the_signatures_that_have_occurred(shown: Callable[..., dict[str, set[str]]]) -> None:
    assert "gpufault_signature_info" not in shown({})


def test_a_node_tells_of_each_cause_that_it_is_exposed_to(shown: Callable[..., dict[str, set[str]]]) -> None:
    assert "gpufault_exposure" not in shown({})
    families = shown({"cuda_version": "12.4"})
    assert families["gpufault_exposure"] == families["gpufault_root_cause_info"] == {"old_cuda"}
