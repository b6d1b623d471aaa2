"""Distinguishes documents from logs by their first lines: a manual or a change history only quotes errors.

A log that is mistaken for a document is not read. So one sign is not enough where a job might print it: a banner or a
comment of a script looks like a heading. Text that begins with timestamps or log levels is a log.
"""

import re
from collections.abc import Sequence
from typing import Final

_LINE_BYTES = 400  # of a line: prose has no longer ones
_LOGGED = re.compile(  # a stamp or a level where a logger puts it; not in the column of a block that is quoted
    rb"\W{0,3}(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|\d+\.\d{6}\]|[A-Z][a-z]{2} [ \d]\d \d\d:|[IWEF]\d{4} )"
    rb"|\W{0,2}(?:INFO|WARN(?:ING)?|ERROR|DEBUG|FATAL)\b"
)
# A job may print `git log -1` or `git diff` first, so that all that is looked at has to be git's.
_OF_GIT = rb"(?:(?:commit|Author|AuthorDate|Commit|CommitDate|Date|Merge|diff|index|---|\+\+\+|@@|[ +-]|\\ No newline)[^\n]*\n)"
_BEGINNINGS: Final = (  # what no job begins with
    ("a history of git", re.compile(rb"(?:commit [0-9a-f]{7,40}\b|diff --git a/)[^\n]*\n" + _OF_GIT + rb"+\Z")),
    (
        "a manual page",
        re.compile(rb"(?:\S.*\n)?NAME\n\s+\S.*(?:-|\xe2\x80\x94) .*\n(?:.*\n)*?(?:SYNOPSIS|DESCRIPTION|ERRORS)\n"),
    ),
    ("a manual page's source", re.compile(rb"(?:['.]\\\"[^\n]*\n)*\.(?:TH|Dd) \S")),
    ("a doctest's report", re.compile(rb"Trying:\n {4}\S.*\n(?:.*\n){0,20}?Expecting")),
    # where a program comes by a pipe, the prompts stand alone
    ("a session of Python", re.compile(rb"(?:Python \d\.\d+[^\n]*\n(?:[^\n]*\n)?)?>>> (?:import|from) \w")),
    ("a session of IPython", re.compile(rb"(?:Python \d\.\d+[^\n]*\n(?:[^\n]*\n){0,3}?)?In \[1\]: (?:import|from) \w")),
    ("reStructuredText", re.compile(rb"\.\. (?:[a-z]+:)?[a-z-]+::|\.\. _[\w -]+:\n")),
)
_MARKDOWN = re.compile(rb"#{1,3} [A-Za-z]|---\ntitle:")
_OF_MARKDOWN: Final = (
    re.compile(rb"^#{2,4} [A-Z`]", re.MULTILINE),
    re.compile(rb"^```\w*\n(?:.*\n)*?```$", re.MULTILINE),
    re.compile(rb"\[[^\]\n]+\]\([^)\s]+\)"),
    re.compile(rb"(?:^|\s)\*\*[A-Z][^*\n]*\*\*"),
    re.compile(rb"^[A-Za-z][^\n`|]*\s`[^`\n]+`", re.MULTILINE),
)
_TITLE = re.compile(rb"(?P<title>[A-Z][^\n]{2,70})\n(?P<line>([=~^*\"-])\3{2,})\n")
_OF_RST: Final = (
    re.compile(rb"^[A-Z][^\n]*::$", re.MULTILINE),
    re.compile(rb"^\.\. [a-z-]+::", re.MULTILINE),
    re.compile(rb"\s``[^`\n]+``"),
)


def document_of(lines: Sequence[bytes]) -> str:
    """The kind of document that begins with these non-empty lines; "" for a log."""
    if any(_LOGGED.match(line) for line in lines[:3]):  # below them a stamp may be quoted
        return ""
    text = b"".join(line.rstrip(b"\r")[:_LINE_BYTES] + b"\n" for line in lines)
    for name, beginning in _BEGINNINGS:
        if beginning.match(text):
            return name
    if _MARKDOWN.match(text) and sum(bool(sign.search(text)) for sign in _OF_MARKDOWN) > 1:
        return "Markdown"
    title = _TITLE.match(text)
    signs = sum(bool(sign.search(text)) for sign in _OF_RST)
    if signs and title and len(title["line"]) == len(title["title"]):
        return "reStructuredText"
    return ""
