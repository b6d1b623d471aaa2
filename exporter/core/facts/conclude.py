"""What follows from facts that several probes state: above all, whether parts that must fit come from one release."""

from collections.abc import Mapping

from exporter.core.facts.amd import rocm_mix
from exporter.core.facts.gpus import Gpu, facts_of

DERIVED = {
    "rocm_mix": "whether driver and ROCm come from two ROCm releases",
    "nvidia_mix": "whether the driver's two halves, module and libcuda, are of two versions: it was updated, not reloaded",
    "fabricmanager_mix": "whether the fabric manager is of another version than the driver, which it refuses to work with",
}


def with_derived_facts(facts: Mapping[str, str], gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """`facts`, those of the GPUs, and those that follow, sorted by name."""
    driver = facts.get("driver_version") if facts.get("driver") == "nvidia" else None
    following = {
        "rocm_mix": rocm_mix(facts.get("amdgpu_rocm_release"), facts.get("rocm_version")),
        "nvidia_mix": _differ(driver, facts.get("libcuda_version")),
        "fabricmanager_mix": _differ(driver, facts.get("fabricmanager_version")),
    }
    known = {name: value for name, value in following.items() if value}
    return dict(sorted({**facts, **facts_of(gpus), **known}.items()))


def _differ(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else str(one != other).lower()
