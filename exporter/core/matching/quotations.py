"""Whether the lines before a line of a job's log introduce it as a quotation: a turn of a chat, an example in a manual."""

import re

SEEN_BYTES = 512  # of the lines before it
MAX_INDENTATION = 64
_SPEAKER = re.compile(rb"<\|(?!end|eo[st]|im_end)[a-z_]{2,20}\|>[a-z]{0,12}\s*$")  # in the templates of language models
_SPEAKER_BYTES = 64
# A line that introduces the indented lines behind it. Programs do not print these about their own errors.
_INTRODUCES = re.compile(
    rb"(?:(?:^|[.:;!?] )[ \t]*(?:If|When|Whenever) .{1,80}\b(?:prints?|says|shows|reports|(?:ends|fails|dies) with)"
    rb"|\b(?:such as|like (?:this|these)|looks like|for (?:example|instance)|[Yy]ou (?:may |might |will )?see))"
    rb"[,:]{0,2}[ \t\r]*$"
)


def needed_before(line: bytes) -> int:
    """How many bytes before a line decide whether it is a quotation."""
    return SEEN_BYTES if line[:1] in (b" ", b"\t") else _SPEAKER_BYTES


def is_introduced(before: bytes, line: bytes) -> bool:
    """Whether a line is a quotation, given the bytes before it and how it begins."""
    last = before[-_SPEAKER_BYTES:]
    if b"|>" in last and _SPEAKER.search(last[last.rfind(b"\n", 0, -1) + 1 :]):
        return True
    indentation = _indentation(line)
    if indentation < 2:
        return False
    for earlier in reversed(_whole_lines(before)):
        if earlier.strip() and _indentation(earlier) < indentation:
            return _indentation(earlier) + 2 <= indentation and _INTRODUCES.search(earlier) is not None
    return False


def _whole_lines(before: bytes) -> list[bytes]:
    """The lines in the last SEEN_BYTES; the first one may begin before these, so it does not count."""
    lines = before[-SEEN_BYTES:].split(b"\n")
    return lines if len(before) < SEEN_BYTES else lines[1:]


def _indentation(line: bytes) -> int:
    """How many columns a line is indented."""
    text = line[:MAX_INDENTATION].expandtabs(8)
    return len(text) - len(text.lstrip(b" "))
