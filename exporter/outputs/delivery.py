"""One receiver's way through the journal: a thread that sends what follows, and how far it has come.

A record is sent at least once: the place moves behind it when the receiver has taken it, and is committed by the daemon
in its next transaction. A kill in between sends it again, with the same id.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from exporter.config.outputs import ReceiverSettings
from exporter.core.diagnosis.records import without_secrets
from exporter.outputs import files
from exporter.outputs.http import Answer, NoAnswer, post
from exporter.outputs.journal_reader import Batch, Place, incidents_behind, mended, read
from exporter.outputs.responses import Judged, Verdict, judged, pause, retry_after
from exporter.store.journal import JournalEnd

TROUBLE_SECONDS = 60.0  # after an error of our own, or of the disk: it will come again
SAID_CHARS = 200  # of a receiver's words in the log

Say = Callable[[Literal["info", "warning"], str], None]


class Form(Protocol):
    """How one kind of receiver wants its requests. See `otlp` and `webhook`."""

    def request(self, records: Sequence[Mapping[str, Any]], now: float) -> tuple[bytes, dict[str, str]]: ...

    def rejected(self, answer: Answer) -> tuple[int, str]: ...


@dataclass(slots=True)
class Tally:
    """What has happened since it was last taken."""

    sent: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    last_success: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one request. `rejected`: how many of its records the receiver did not take, and its words."""

    verdict: Verdict
    pause_seconds: float = 0.0
    rejected: int = 0
    words: str = ""


class Delivery:
    """Sends what the journal in `folder` holds behind `place`. All methods return at once, but for `stop`."""

    def __init__(
        self,
        name: str,
        settings: ReceiverSettings,
        form: Callable[[], Form],
        *,
        folder: Path,
        place: Place,
        say: Say,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """form: called for each request, so that a key may be replaced; raises OSError, ValueError.

        say: tells the daemon's log, which hides secrets. From any thread.
        """
        self.name = name
        self._settings = settings
        self._form = form
        self._most = settings.batch
        self._folder = folder
        self._say = say
        self._clock = clock
        self._changed = threading.Condition()
        self._place = place
        self._end = JournalEnd(0, 0)
        self._tally = Tally()
        self._waits_since: float | None = None
        self._contexts = files.Contexts(settings.tls)
        self._dice = random.Random()  # noqa: S311 (spreads retries, hides nothing; others may seed the global one)
        self._failures = 0
        self._said = ""
        self._stopped = False
        self._thread: threading.Thread | None = None

    # -- called by the daemon

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Begin to send what the journal holds up to the end that `wake` names."""
        self._thread = threading.Thread(target=self._run, name=f"output-{self.name}", daemon=True)
        self._thread.start()

    def wake(self, end: JournalEnd) -> None:
        """The journal holds more, up to `end`."""
        with self._changed:
            if end != self._end:
                self._end = end
                self._changed.notify()

    def take(self) -> tuple[Place, Tally]:
        """How far it has come, and what happened on the way since the last call: to be committed together."""
        with self._changed:
            tally, self._tally = self._tally, Tally()
            return self._place, tally

    def before_drop(self, segment: int, path: Path) -> None:
        """A segment is about to go: what it holds and was not known to be received is lost, and counted."""
        with self._changed:
            if self._place.segment <= segment:
                behind = self._place.offset if self._place.segment == segment else 0
                self._tally.dropped["journal"] += incidents_behind(path, behind)
                self._place = Place(segment + 1, 0, 0)
                self._changed.notify()

    @property
    def up(self) -> bool:
        """Whether the last request was answered as it should be."""
        return self._failures == 0

    def lag(self, now: float) -> float:
        """Seconds since the oldest record was made that waits to be sent; 0 if none does."""
        since = self._waits_since
        return max(0.0, now - since) if since is not None else 0.0

    def stop(self, seconds: float = 0.0) -> None:
        """Send nothing more; wait so long for a request in progress."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None and seconds:
            self._thread.join(seconds)

    # -- the thread

    def _run(self) -> None:
        while not self._stopped:
            try:
                batch = self._next()
                if batch.records:
                    self._send(batch)
                else:
                    self._pass(batch)
            except OSError as error:
                self._fail("journal", f"the journal cannot be read: {error}")
                self._rest(TROUBLE_SECONDS)
            except Exception as error:
                self._fail("bug", f"failed: {error!r}; please report it")
                self._rest(TROUBLE_SECONDS)

    def _next(self) -> Batch:
        """What is to be sent next; without records where there is nothing, and time was given to let some come."""
        with self._changed:
            start, end = self._place, self._end
        try:
            place = mended(self._folder, start)
            batch = read(self._folder, place, end, self._most)
        except FileNotFoundError:  # dropped meanwhile, and the place has moved on; or removed by somebody
            batch = Batch(start, start, ())
        else:
            if place != start:
                self._say(
                    "warning", "the journal is not the one that was read; what it holds is sent from its beginning"
                )
                batch = replace(batch, start=start)
        self._waits_since = _made(batch.records[0].record, self._clock()) if batch.records else None
        if batch.start == batch.end:
            with self._changed:
                if self._end == end and self._place == start and not self._stopped:
                    self._changed.wait()
        return batch

    def _send(self, batch: Batch) -> None:
        """Send a batch until it is taken, or refused, or no longer what is next."""
        while not self._stopped and self._place == batch.start:
            attempt = self._attempt(batch)
            if attempt.verdict == "sent":
                self._sent(batch, attempt)
                return
            if attempt.verdict != "refused":
                self._rest(attempt.pause_seconds)
            elif len(batch.records) > 1:
                batch = batch.first(len(batch.records) // 2)  # one of them is at fault, or they are too many
            else:
                self._pass(batch, refused=1)
                return

    def _attempt(self, batch: Batch) -> Attempt:
        settings, now = self._settings, self._clock()
        records = [without_secrets(placed.record) for placed in batch.records]
        try:
            form, url = self._form(), files.url_of(settings)
            headers = files.headers_of(settings)
            context = self._contexts.now() if url.tls else None
        except (OSError, ValueError) as error:
            self._fail("settings", f"nothing can be sent: {error}")
            return Attempt("held", self._pause("held"))
        body, own = form.request(records, now)
        try:
            answer = post(url, body, headers | own, context=context, seconds=settings.timeout)
        except NoAnswer as error:
            self._fail(error.reason, f"{url.origin}: {error}")
            return Attempt("again", self._pause("again"))
        result = judged(answer.status)
        if result.verdict == "sent":
            return Attempt("sent", 0.0, *form.rejected(answer))
        self._fail(result.reason, f"{url.origin} answered {answer.status}{_words(answer)}{_hint(result, answer)}")
        return Attempt(result.verdict, max(self._pause(result.verdict), retry_after(answer.headers, now)))

    def _sent(self, batch: Batch, attempt: Attempt) -> None:
        count = len(batch.records)
        rejected = min(max(attempt.rejected, 0), count)
        if rejected or attempt.words:
            self._say("warning", f"the receiver did not take {rejected} of {count}: {_printable(attempt.words)}")
        if self._failures:
            self._say("info", "reached again")
        self._failures, self._said = 0, ""
        with self._changed:
            self._tally.last_success = self._clock()
            if self._place == batch.start:  # else the journal's bound has counted them as dropped already
                self._tally.sent += count - rejected
        self._pass(batch, refused=rejected)

    def _pass(self, batch: Batch, *, refused: int = 0) -> None:
        """Go on behind a batch, unless the journal's bound has moved us on already."""
        with self._changed:
            if refused:
                self._tally.dropped["refused"] += refused
            if batch.unreadable:
                self._tally.dropped["unreadable"] += 1
            if self._place == batch.start:
                self._place = batch.end

    def _fail(self, reason: str, what: str) -> None:
        """Count a failure, and tell of the first of a row of the same kind."""
        with self._changed:
            self._failures += 1
            self._tally.failed[reason] += 1
        if reason != self._said:
            self._said = reason
            self._say("warning", what)

    def _pause(self, verdict: Verdict) -> float:
        retry = self._settings.retry
        failures = 64 if verdict == "held" else max(self._failures, 1)
        return pause(failures, retry.first, retry.most, self._dice.random())

    def _rest(self, seconds: float) -> None:
        """Wait, but no longer than what failed is still what is next."""
        deadline = time.monotonic() + seconds
        with self._changed:
            place = self._place
            while not self._stopped and self._place == place and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)


def _made(record: Mapping[str, Any], now: float) -> float:
    """When a record was made, by the node's clock; now for one that does not say."""
    try:
        return datetime.fromisoformat(str(record.get("recorded_time") or record.get("time"))).timestamp()
    except ValueError:
        return now


def _words(answer: Answer) -> str:
    """What a receiver says of a failure, if that is text."""
    text = _printable(answer.body.decode("utf-8", "replace")).strip()
    return f": {text}" if text else ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:SAID_CHARS])


def _hint(result: Judged, answer: Answer) -> str:
    if result.verdict == "refused":
        return "; it will never take this, so what it refuses goes"
    if answer.status in (301, 302, 303, 307, 308):
        return "; redirects are not followed, write the address that is meant into url"
    return "; retried when the configuration is fixed" if result.verdict == "held" else ""
