"""Derived facts: whether parts that must match come from one release."""

from collections.abc import Mapping

from exporter.core.facts.amd import rocm_mix
from exporter.core.facts.gpus import Gpu, facts_of

DERIVED = {
    "rocm_mix": "whether driver and ROCm come from different ROCm releases",
    "nvidia_mix": "whether kernel module and libcuda differ in version: updated, but not reloaded",
    "gpus_lost": "how many GPUs fewer than at most in the last 24 hours; known to the daemon only",
    "fabricmanager_mix": "whether the fabric manager and the driver differ in version, so it refuses to start",
}


def with_derived_facts(facts: Mapping[str, str], gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """The facts, those of the GPUs, and derived ones, sorted by name."""
    driver = facts.get("driver_version") if facts.get("driver") == "nvidia" else None
    derived = {
        "rocm_mix": rocm_mix(facts.get("amdgpu_rocm_release"), facts.get("rocm_version")),
        "nvidia_mix": _differ(driver, facts.get("libcuda_version")),
        "fabricmanager_mix": _differ(driver, facts.get("fabricmanager_version")),
    }
    derived_facts = {name: value for name, value in derived.items() if value}
    return dict(sorted({**facts, **facts_of(gpus), **derived_facts}.items()))


def _differ(a: str | None, b: str | None) -> str | None:
    return None if a is None or b is None else str(a != b).lower()
