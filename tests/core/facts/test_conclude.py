"""What follows from several facts."""

import pytest

from exporter.core.facts.conclude import with_derived_facts


@pytest.mark.parametrize(
    ("driver_release", "rocm", "mix"),
    [("5.2.0", "6.2.3", "true"), ("6.2.2", "6.2.0", "false"), ("6.2.2", None, None), (None, "6.2.3", None)],
)
def test_a_mix_of_rocm_releases_is_reported_if_both_are_known(
    driver_release: str | None, rocm: str | None, mix: str | None
) -> None:
    stated = {"amdgpu_rocm_release": driver_release, "rocm_version": rocm}
    known = {fact: value for fact, value in stated.items() if value}

    assert with_derived_facts(known, ()).get("rocm_mix") == mix


def test_a_driver_that_was_updated_but_not_reloaded_is_a_mix() -> None:
    loaded = {"driver": "nvidia", "driver_version": "550.90.07"}

    assert with_derived_facts({**loaded, "libcuda_version": "550.127.05"}, ())["nvidia_mix"] == "true"
    assert with_derived_facts({**loaded, "fabricmanager_version": "550.90.07"}, ())["fabricmanager_mix"] == "false"
    assert "nvidia_mix" not in with_derived_facts(loaded, ())
