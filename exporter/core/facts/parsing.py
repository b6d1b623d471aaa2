"""Parses values of facts: one printable line each, short enough for a label."""

import re
from collections.abc import Iterable

_VALUE_CHARS = 200  # the longest real value has under 80


def single_line(text: str | None) -> str | None:
    """The text of a one-line file; None if empty, long or not printable."""
    value = (text or "").strip()
    return value if value and len(value) <= _VALUE_CHARS and value.isprintable() else None


def identity(text: str | None) -> str | None:
    """As `single_line`, for identifiers; None if it has only zeros or question marks.

    A driver prints `GPU-????????-????-…`, `??.??.??.??.??` or 0 for a GPU that is not initialised yet.
    """
    value = single_line(text)
    return None if value is None or re.fullmatch(r"(?:GPU-)?(?:0x)?[0?.\-]+", value) else value


def number(text: str | None) -> int | None:
    """A decimal or 0x-prefixed hexadecimal number without other text."""
    match = re.fullmatch(r"\s*(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})\s*", text or "")
    return int(match[0], 0 if "x" in match[0].lower() else 10) if match else None


def on_or_off(text: str | None) -> str | None:
    """`true` or `false` from the kernel's spellings (1, Y, yes, on, enabled, …)."""
    spelled = (text or "").strip().lower()
    if spelled in ("1", "y", "yes", "on", "enabled", "true"):
        return "true"
    return "false" if spelled in ("0", "n", "no", "off", "disabled", "false") else None


def bracketed_word(text: str | None) -> str | None:
    """`always` from `[always] madvise never`."""
    match = re.search(r"\[([\w-]{1,40})\]", text or "")
    return match[1] if match else None


def distinct_values(values: Iterable[str | None]) -> str | None:
    """The distinct values, sorted and joined by "+"."""
    return "+".join(sorted({value for value in values if value})) or None


def size(count: int | None) -> str | None:
    """`192 GiB`, `256 MiB`: rounded, to ignore differences in BIOS reservations."""
    if not count:
        return None
    return f"{round(count / 2**30)} GiB" if count >= 2**30 else f"{round(count / 2**20)} MiB"


def assignments(text: str) -> dict[str, str]:
    """NAME=value lines of os-release and uevent files."""
    return {name: value for name, _, value in re.findall(r"^(\w+)=([\"']?)(.*?)\2$", text, re.MULTILINE)}


def fields(text: str) -> dict[str, str]:
    """`Name: value` lines, common in /proc."""
    return {name.strip(): value for name, value in re.findall(r"^([^:\n]{1,80}):[ \t]*(\S.*)$", text, re.MULTILINE)}


def sorted_versions(versions: Iterable[str]) -> list[str]:
    """Distinct dotted numbers, highest last."""
    return sorted(set(versions), key=lambda version: [int(part) for part in version.split(".")])
