"""One piece of evidence in words, as `scan`, `explain` and the node's page show it."""

from __future__ import annotations


def evidence_text(what: str, value: str, why: str, where: str = "") -> str:
    """For example `home_fs_type is nfs4 (node) – the home is on NFS`. where: the line or source that shows it."""
    kind, _, name = what.partition(" ")
    if kind == "line":
        text = f"{where or name.removeprefix('of ')}: “{value}”"
    elif kind == "reported":
        text = f"reported {value}" + (f" ({where})" if where else "")
    elif kind == "words":
        text = f"{where or 'the line'}: “{value}”"
    elif kind == "capture":
        text = f"{where or 'the line'}: {name} “{value}”"
    else:
        text = (f"{name} is {value}" if value else name) + (f" ({where})" if where else "")
    return text + (f" – {why}" if why else "")
