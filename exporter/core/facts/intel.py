"""Facts of i915, xe and oneAPI."""

import re
from collections.abc import Iterable


def firmware_version(uc_info: str | None) -> str | None:
    """The running GuC or HuC version from `gt0/uc/guc_info` in debugfs, or None.

    i915 prints `version: found 70.20.0` (or `wanted 70.29.2, found 70.20.0`), xe `found release version 70.29.2`.
    """
    if not re.search(r"^\s*status: (?:RUNNING|TRANSFERRED)\s*$", uc_info or "", re.MULTILINE):
        return None
    match = re.search(r"\bfound (?:release version )?(\d+\.\d+\.\d+)", uc_info or "")
    return match[1] if match else None


def oneapi_versions(names: Iterable[str]) -> list[str]:
    """The releases in /opt/intel/oneapi/compiler: 2024.2, 2025.0.4; `latest` is a link."""
    return [name for name in names if re.fullmatch(r"20\d\d\.\d+(?:\.\d+)?", name)]
