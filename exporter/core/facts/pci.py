"""PCI addresses, in which every GPU is named, and what the PCI bus states of a device. Pure: text in, values out."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from exporter.core.facts.parsing import number

_PCI = re.compile(
    r"""
    (?:PCI:)?                               # NVRM: Xid (PCI:0000:c1:00): 79
    (?:(?P<domain>[0-9a-f]{4,8}):)?         # nvidia-smi 00000000:C1:00.0; DMAR [c1:00.0] has none
    (?P<bus>[0-9a-f]{2}):
    (?P<device>[01][0-9a-f])                # five bits: excludes times such as 12:34
    (?:\.(?P<function>[0-7]))?
    """,
    re.VERBOSE | re.IGNORECASE,
)


@lru_cache(maxsize=1024)  # a node's GPUs in several spellings
def normalise_pci(text: str) -> str | None:
    """A PCI address in the kernel's spelling (`0000:c1:00.0`); None if invalid."""
    match = _PCI.fullmatch(text.strip(" []\n"))
    if match is None:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}.{match['function'] or 0}".lower()


def pcie_speed(text: str | None) -> str | None:
    """`32 GT/s` of `32.0 GT/s PCIe`; None for `Unknown` (APUs, sleeping GPUs)."""
    match = re.match(r"\s*(\d{1,3}(?:\.\d+)?) GT/s", text or "")
    return f"{float(match[1]):g} GT/s" if match else None


def pcie_width(text: str | None) -> str | None:
    """`x16` of `16`; None for 0 and 255: the link is down."""
    lanes = number(text)
    return f"x{lanes}" if lanes in (1, 2, 4, 8, 12, 16, 32) else None


def link_is_degraded(links: Sequence[tuple[str | None, str | None]]) -> str | None:
    """Whether a link has fewer lanes in use than its ends have; `true`, `false`, or None if no link is known.

    links: lanes in use and possible lanes of a device and of each bridge above it. A link is between two neighbours, so a
    card with 16 lanes in a slot with 8 is not degraded.
    """
    comparisons = [
        int(current[1:]) < min(int(most[1:]) for most in (own, above) if most)
        for (current, own), (_, above) in pairwise(links if links[1:] else [*links, (None, None)])
        if current and own
    ]
    return str(any(comparisons)).lower() if comparisons else None


_BARS = 6  # followed by the ROM and the BARs of virtual functions
_MEMORY = 0x200  # IORESOURCE_MEM (include/linux/ioport.h)


def largest_bar(resource: str) -> int | None:
    """Bytes of the largest memory window in a device's `resource` file (start, end, flags).

    All of a GPU's memory with a large BAR, else mostly 256 MiB.
    """
    sizes = [0]
    for line in resource.splitlines()[:_BARS]:
        match line.split():
            case [start, end, flags] if (number(flags) or 0) & _MEMORY:
                sizes.append((number(end) or 0) - (number(start) or 0) + 1)
    return max(sizes) if max(sizes) > 1 else None
