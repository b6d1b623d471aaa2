"""The template of a message: what stays the same where the same error occurs elsewhere."""

import re

MAX_TEMPLATE = 200  # characters
_MASKS = (
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+"), "<url>"),
    (re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\w.+@~-]*/){2,}[\w.+@~-]*"), "<path>"),
    (re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b"), "<pci>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\b(?=\w*\d)[A-Za-z][\w-]*(?:\.[\w-]+){2,}\b"), "<host>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "<hex>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def template_of(message: str) -> str:
    """A message with addresses, paths, hosts and numbers masked, so that two occurrences of one error are alike."""
    text = message[: 4 * MAX_TEMPLATE]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text.strip()[:MAX_TEMPLATE]


def error_of(text: str) -> str:
    """The error that a text begins with: its first line, and the rest where that line only introduces a message."""
    line = text.partition("\n")[0]
    return text if line.rstrip().endswith(":") else line
