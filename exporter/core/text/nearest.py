"""The nearest known name to a misspelt one, for "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable

ALIKE = 0.8  # of difflib: cuda_verison is 0.92 like cuda_version, nv_xid_999 0.59 like nv_xid_93_inforom


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or ""; of a glob nothing."""
    if not set("*?").isdisjoint(name):
        return ""
    from difflib import get_close_matches  # only after a mistake

    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=ALIKE)), "")
