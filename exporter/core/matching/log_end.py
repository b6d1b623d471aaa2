"""Whether a log ended in a crash that no signature names.

A line that looks like a crash is only suspected: programs print errors that they handle. It was a crash if a launcher
reports the end of the job soon behind it, or if the log ends there without a word of success. Where the log goes on, it
was handled, and the same kind of error is not suspected again in this log. A signature may be suspected too: a step that
Slurm refuses ends its job only if the job does nothing else. Positions are offsets in bytes. Knows no files and no clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter.core.matching.stored_matches import dump_match, load_match
from exporter.core.model import UNRECOGNISED, LogContext, Match

SILENT_SECONDS = 300.0  # without a new line: the log has ended, as far as anybody can know
TAIL_BYTES = 2048  # that exit handlers and job scripts may still print behind a crash: some 20 lines
LAST_BYTES = 512  # that a job script may still print behind a line that counts only at the end: the date, what it used
REACH_BYTES = 8192  # between two reports of one crash: what other ranks print in between
TRACEBACK_BYTES = 1 << 16  # from the heading of a traceback to its last line
MAX_HANDLED = 16  # kinds of errors that a log goes on after; behind more, no error of it is suspected


class LogEnd(NamedTuple):
    """What the last lines of a log say about its end.

    `suspect` is the first line of a crash that nothing explains yet, and `last` where its last report ends. `words` is the
    last line that complains, with its end: a crash only if a launcher reports the end of its process soon behind it.
    `reported` is where one did last, and `named` where a signature last named a crash. `success`: a line behind them says
    that the program ended well. `traceback` is where a traceback begins whose last line has not come. `end` is how far the
    log was read since. `died`: a process of this run has ended in a crash. `run` is where the program was started again
    after that, 0 in its first run.
    """

    suspect: Match | None = None
    words: tuple[Match, int] | None = None
    last: int = 0
    success: bool = False
    named: int | None = None
    reported: int | None = None
    traceback: int | None = None
    handled: frozenset[str] = frozenset()
    died: bool = False
    run: int = 0
    end: int = 0
    read_at: float = 0.0

    @property
    def went_on(self) -> bool:
        """Whether the program handled the last error that a signature named: it said so, or printed much behind it."""
        if self.named is None or self.suspect is not None:
            return False
        return self.success or self.end - self.named > REACH_BYTES

    @property
    def run_name(self) -> str | None:
        """The run of the program, as in `Match.raised_by`; None for its first."""
        return f"run {self.run}" if self.run else None

    def heading(self, offset: int) -> LogEnd:
        """A traceback begins."""
        return self._replace(traceback=offset)

    def opened(self, offset: int) -> int | None:
        """Where the traceback begins that a line at an offset may end."""
        began = self.traceback
        return began if began is not None and 0 <= offset - began <= TRACEBACK_BYTES else None

    def suspected(self, match: Match, began: int, end: int) -> LogEnd:
        """One more line looks like a crash, from `began`, where its traceback begins, to `end`."""
        now = self._replace(traceback=None)
        if now.suspect is not None:
            if began - now.last <= REACH_BYTES and now.suspect.signature == match.signature:
                return now._replace(last=end, success=False)
            now = now._went_on()
        is_explained = now.named is not None and began - now.named <= REACH_BYTES
        if is_explained or kind_of(match) in now.handled or len(now.handled) >= MAX_HANDLED:
            return now
        return now._replace(suspect=match, last=end, success=False)

    def complained(self, match: Match, end: int) -> LogEnd:
        """A line complains, up to `end`. A crash that is named or suspected needs no other words."""
        is_after = self.reported is not None and match.offset - self.reported <= REACH_BYTES
        is_suspected = self.suspect is not None and self.suspect.signature == UNRECOGNISED
        if is_suspected or self.named is not None or is_after:
            return self
        return self._replace(words=(match, end), success=False)

    def named_at(self, offset: int) -> LogEnd:
        """A signature names a crash. It explains what is suspected nearby."""
        if self.suspect is None:
            return self._replace(named=offset, words=None, success=False)
        if offset - self.last <= REACH_BYTES:
            return self._replace(named=offset, suspect=None, success=False)
        return self._went_on()._replace(named=offset, success=False)

    def reported_at(self, offset: int, *, with_words: bool) -> tuple[LogEnd, Match | None]:
        """A launcher or a peer reports the end of a process; the crash that was suspected or, `with_words`, complained of."""
        if self.suspect is not None and offset - self.last <= REACH_BYTES and self.suspect.signature == UNRECOGNISED:
            return self._replace(suspect=None, words=None, named=offset), self.suspect
        if self.suspect is None and self.words and with_words:
            complained, end = self.words
            is_last = offset - end <= TAIL_BYTES
            return self._replace(
                words=None, named=offset if is_last else None, reported=offset
            ), complained if is_last else None
        named = None if self.named is None else offset
        return self._replace(named=named, reported=offset, success=self.success and named is None), None

    def ended_process(self) -> LogEnd:
        """A process of the program has ended in a crash."""
        return self if self.died else self._replace(died=True)

    def started(self, offset: int) -> LogEnd:
        """The program starts: again, if it has crashed. What it shows from here on belongs to another crash."""
        return LogEnd(handled=self.handled, run=offset) if self.died and self.named is not None else self

    def succeeded(self) -> LogEnd:
        """The program says that it ended well. A launcher may know better."""
        return self._replace(success=self.suspect is not None or self.named is not None, words=None)

    def read_to(self, offset: int, read_at: float) -> LogEnd:
        """The log was read so far."""
        if self.suspect is None:
            return self if self.named is None else self._replace(end=offset)
        if offset - self.last > REACH_BYTES:
            return self._went_on()
        return self._replace(end=offset, read_at=read_at)

    def ended(self) -> tuple[LogEnd, Match | None]:
        """The log ends here; the crash in which it did."""
        if self.suspect is None:
            return self, None
        done = self._replace(suspect=None, named=self.last)
        tail = TAIL_BYTES if self.suspect.signature == UNRECOGNISED else LAST_BYTES
        is_crash = self.end - self.last <= tail and not self.success
        return (done, self.suspect) if is_crash else (self._went_on(), None)

    def _went_on(self) -> LogEnd:
        assert self.suspect is not None
        return self._replace(suspect=None, handled=self.handled | {kind_of(self.suspect)})


RUNNING = LogEnd()


def kind_of(match: Match) -> str:
    """What makes two errors of one log alike: the type of an exception, the message, or the signature."""
    return match.captures.get("type") or match.captures.get("template") or match.signature


def dump_log_end(end: LogEnd) -> dict[str, Any]:
    """What the last lines say, as plain data; only what is there."""
    plain: dict[str, Any] = {
        **end._asdict(),
        "suspect": dump_match(end.suspect) if end.suspect else None,
        "words": dump_match(end.words[0]) if end.words else None,
        "words_end": end.words[1] if end.words else None,
        "handled": sorted(end.handled),
    }
    offsets = ("named", "reported", "traceback")
    return {name: value for name, value in plain.items() if value or (value == 0 and name in offsets)}


def load_log_end(stored: Mapping[str, Any], context: LogContext) -> LogEnd:
    """What `dump_log_end` wrote. Raises ValueError, TypeError, KeyError and AttributeError for anything else."""
    suspect, words = stored.get("suspect"), stored.get("words")
    matches: dict[str, Any] = {
        "suspect": load_match(suspect, context) if suspect else None,
        "words": (load_match(words, context), stored["words_end"]) if words else None,
        "handled": frozenset(stored.get("handled", ())),
    }
    return LogEnd(**{name: value for name, value in stored.items() if name in LogEnd._fields} | matches)
