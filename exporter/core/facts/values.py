"""Values of facts: one printable line each, short enough for a label. What every other module here builds on."""

import re
from collections.abc import Iterable

_VALUE_CHARS = 200  # the longest real one is an NVIDIA or DMI name of under 80; a label must not carry a screenful


def single_line(text: str | None) -> str | None:
    """What a one-line file states; None when it is empty, long or not printable, so that garbage is never a fact."""
    value = (text or "").strip()
    return value if value and len(value) <= _VALUE_CHARS and value.isprintable() else None


def identity(text: str | None) -> str | None:
    """As `one_value`, for identifiers, in which only zeros or question marks mean "not read yet".

    A driver prints `GPU-????????-????-…`, `??.??.??.??.??` or 0 for a GPU that it has not initialised. Taken as
    identities, they would make one card of all cards in that state.
    """
    value = single_line(text)
    return None if value is None or re.fullmatch(r"(?:GPU-)?(?:0x)?[0?.\-]+", value) else value


def number(text: str | None) -> int | None:
    """A decimal or, with 0x, hexadecimal number that stands alone."""
    match = re.fullmatch(r"\s*(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})\s*", text or "")
    return int(match[0], 0 if "x" in match[0].lower() else 10) if match else None


def on_or_off(text: str | None) -> str | None:
    """`true` or `false`, in which of its ways (1, Y, yes, on, enabled) the kernel may spell it."""
    spelled = (text or "").strip().lower()
    if spelled in ("1", "y", "yes", "on", "enabled", "true"):
        return "true"
    return "false" if spelled in ("0", "n", "no", "off", "disabled", "false") else None


def bracketed_word(text: str | None) -> str | None:
    """The word in brackets: `[always] madvise never`."""
    match = re.search(r"\[([\w-]{1,40})\]", text or "")
    return match[1] if match else None


def distinct_values(values: Iterable[str | None]) -> str | None:
    """One string for what should be the same everywhere on a node: the values that differ, sorted, with "+" between."""
    return "+".join(sorted({value for value in values if value})) or None


def size(count: int | None) -> str | None:
    """`192 GiB`, `256 MiB`: rounded, since a BIOS that keeps a page more for itself makes no other machine."""
    if not count:
        return None
    return f"{round(count / 2**30)} GiB" if count >= 2**30 else f"{round(count / 2**20)} MiB"


def assignments(text: str) -> dict[str, str]:
    """NAME=value lines, quoted or not, of os-release and uevent files."""
    return {name: value for name, _, value in re.findall(r"^(\w+)=([\"']?)(.*?)\2$", text, re.MULTILINE)}


def fields(text: str) -> dict[str, str]:
    """`Name: value` lines, as most of /proc has them."""
    return {name.strip(): value for name, value in re.findall(r"^([^:\n]{1,80}):[ \t]*(\S.*)$", text, re.MULTILINE)}


def sorted_versions(versions: Iterable[str]) -> list[str]:
    """Dotted numbers, each once, the highest last."""
    return sorted(set(versions), key=lambda version: [int(part) for part in version.split(".")])
