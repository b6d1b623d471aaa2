"""What the documentation tells to type, taken apart into the programs and arguments that a shell would start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from exporter.cli.main import _parser

# What is on a node, or where an SRE sits, beside gpufault and promtool.
PROGRAMS = {"cat", "chronyc", "curl", "df", "du", "grep", "journalctl", "jq", "systemctl", "tail"}
PREFIXES = {"sudo", "time"}
PROMETHEUS = ["query", "instant", "http://prometheus:9090"]


def consoles(page: str) -> list[list[str]]:
    """The lines of each block of a terminal, indented ones too."""
    blocks = re.findall(r"^( *)```console\n(.*?)^\1```", page, re.DOTALL | re.MULTILINE)
    return [[line.removeprefix(indent) for line in block.splitlines()] for indent, block in blocks]


def typed(page: str) -> list[str]:
    """The lines that a page tells to type at a prompt."""
    return [line[2:] for block in consoles(page) for line in _joined(block) if line.startswith("$ ")]


def written(page: str) -> list[str]:
    """Those, the lines of blocks of no language, and commands of gpufault that stand in a sentence.

    What is only the name of a command there, without the arguments that it takes, asks for its help.
    """
    blocks = re.findall(r"^```\n(.*?)^```", _without(page, r"^```\w+\n.*?^```"), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in _joined(block.splitlines()) if "gpufault" in line]
    prose = _without(page, r"^ *```.*?^ *```")
    spans = [re.sub(r"\s+", " ", span) for span in re.findall(r"(?<!`)`(gpufault (?!is )[^`]+)`(?!`)", prose)]
    named = re.compile(r"gpufault( [a-z-]+){1,2}")
    return [*typed(page), *lines, *(f"{span} --help" if named.fullmatch(span) else span for span in spans)]


def programs(line: str) -> Iterator[list[str]]:
    """Each program of a line with its arguments, also of one that runs on a node through ssh or in a pod."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for word in [*lexer, ";"]:
        if set(word) <= {"<", ">", "&"} and set(word) & {"<", ">"}:
            redirected = True
        elif not set(word) <= set("|;&"):
            words += [] if redirected else [word]
            redirected = False
        elif words:
            yield from _inner(words)
            words = []


def understood(command: list[str]) -> bool:
    """Whether gpufault takes these arguments; it says on stderr what it does not understand."""
    try:
        _parser().parse_args(command[1:])
    except SystemExit as end:
        return end.code == 0  # --help
    return True


def _inner(words: list[str]) -> Iterator[list[str]]:
    while words[0] in PREFIXES:
        words = words[1:]
    if words[0] == "ssh":
        assert words[1] == "NODE"
        yield from programs(words[2] if len(words) == 3 else shlex.join(words[2:]))
        return
    yield words
    if words[0] == "kubectl" and "--" in words:
        yield words[words.index("--") + 1 :]


def _joined(lines: list[str]) -> list[str]:
    """Lines that end with a backslash go on in the next."""
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def _without(page: str, pattern: str) -> str:
    return re.sub(pattern, "", page, flags=re.DOTALL | re.MULTILINE)
