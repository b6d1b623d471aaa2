"""Phrases of messages: counts, evidence, lists, near names, and untrusted text made printable."""

from collections.abc import Iterable, Sequence


def counted(count: int, one: str, many: str = "") -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


ALIKE = 0.8  # of difflib: cuda_verison is 0.92 like cuda_version, nv_xid_999 0.59 like nv_xid_93_inforom


def nearest(name: str, names: Iterable[str]) -> str:
    """The known name that was probably meant, or ""; of a glob nothing."""
    if not set("*?").isdisjoint(name):
        return ""
    from difflib import get_close_matches  # only after a mistake

    return next(iter(get_close_matches(name, sorted(names), n=1, cutoff=ALIKE)), "")


def printable(text: str) -> str:
    """The text with control and bidirectional characters escaped: ESC as `\\x1b`.

    Terminals obey ESC and U+009B, browsers drop NUL and refuse lone surrogates, and U+202E disguises names in both.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def spreadsheet_cell(value: object) -> object:
    """A value for CSV; a text that a spreadsheet would run as a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    is_formula = text.lstrip().startswith(("=", "+", "-", "@", "|", "%")) or text.startswith(("\\t", "\\r", "\\n"))
    return f"'{text}" if is_formula else text


def evidence_text(subject: str, value: str, why: str, where: str = "") -> str:
    """For example `home_fs_type is nfs4 (node) – the home is on NFS`. where: the line or source that shows it."""
    kind, _, name = subject.partition(" ")
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
