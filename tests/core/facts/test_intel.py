"""What i915, xe and oneAPI state."""

import pytest

from exporter.core.facts import intel


@pytest.mark.parametrize(
    ("info", "version"),
    [
        ("GuC firmware: i915/pvc_guc_70.bin\n\tstatus: RUNNING\n\tversion: found 70.20.0\n", "70.20.0"),
        ("GuC firmware: x\n\tstatus: RUNNING\n\tversion: wanted 70.29.2, found 70.20.0\n", "70.20.0"),
        (
            "GuC firmware: x\n\tstatus: RUNNING\n\twanted release version 70.1.1\n\tfound release version 70.44.1\n",
            "70.44.1",
        ),
        ("HuC firmware: x\n\tstatus: TRANSFERRED\n\tversion: found 7.10.16\n", "7.10.16"),
        ("GuC firmware: x\n\tstatus: LOAD FAIL\n\tversion: found 70.20.0\n", None),
        ("", None),
        (None, None),
    ],
)
def test_a_firmware_is_the_one_that_was_found_where_it_runs(info: str | None, version: str | None) -> None:
    assert intel.firmware_version(info) == version


def test_only_releases_of_oneapi_are_releases() -> None:
    assert intel.oneapi_versions(["2024.2", "2025.0.4", "latest", "1.0", "2025"]) == ["2024.2", "2025.0.4"]
