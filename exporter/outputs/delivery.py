"""Sends incidents from the journal to one receiver, in a thread, and keeps track of the position in the journal.

Each incident is sent at least once. The position advances when the receiver has accepted a request, and the daemon commits
it in its next transaction. After a kill in between, the incident is sent again with the same id.
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
from typing import TYPE_CHECKING, Any, Literal, Protocol

from exporter.core.diagnosis.records import without_secrets
from exporter.net.credentials import ContextCache
from exporter.net.http import RequestFailed, Response, request
from exporter.outputs.journal_reader import Batch, JournalPosition, count_incidents, read_batch, valid_position
from exporter.outputs.receiver_settings import read_headers, read_url
from exporter.outputs.responses import Classified, Outcome, classify, retry_after, retry_delay
from exporter.store.journal import JournalEnd

if TYPE_CHECKING:
    from exporter.config.outputs import ReceiverSettings

ERROR_SECONDS = 60.0  # to wait after an error of the disk, or of our own: it will probably occur again
MAX_LOGGED_CHARS = 200  # of a receiver's message

Log = Callable[[Literal["info", "warning"], str], None]


class RequestFormat(Protocol):
    """How one kind of receiver encodes requests and reports rejected records. See `otlp` and `webhook`."""

    def request(self, records: Sequence[Mapping[str, Any]], now: float) -> tuple[bytes, dict[str, str]]:
        """Body and headers of a request with these records."""

    def rejected(self, response: Response) -> tuple[int, str]:
        """How many records of an accepted request the receiver rejected, and its message."""


@dataclass(slots=True)
class OutputCounts:
    """What an output has done since its counts were last taken; counts of drops and failures by reason."""

    sent: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    last_success: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one request. `rejected` and `message`: how many records the receiver rejected, and why."""

    outcome: Outcome
    wait_seconds: float = 0.0
    rejected: int = 0
    message: str = ""


class Delivery:
    """Sends the incidents that follow `position` in the journal. No method blocks except `stop`."""

    def __init__(
        self,
        name: str,
        settings: ReceiverSettings,
        request_format: Callable[[], RequestFormat],
        *,
        folder: Path,
        position: JournalPosition,
        log: Log,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """request_format: called for each request, so that a key may be replaced; raises OSError, ValueError.

        folder: of the journal. log: called from the thread; must hide secrets.
        """
        self.name = name
        self._settings = settings
        self._request_format = request_format
        self._folder = folder
        self._log = log
        self._clock = clock
        self._changed = threading.Condition()
        self._position = position
        self._end = JournalEnd(0, 0)
        self._counts = OutputCounts()
        self._oldest_unsent: float | None = None
        self._contexts = ContextCache(settings.tls)
        self._random = random.Random()  # noqa: S311 (spreads retries, hides nothing; others may seed the global one)
        self._failures = 0  # in a row
        self._logged_reason = ""
        self._stopped = False
        self._thread: threading.Thread | None = None

    # -- called by the daemon

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Start the thread. It sends what the journal holds up to the end given to `wake`."""
        self._thread = threading.Thread(target=self._run, name=f"output-{self.name}", daemon=True)
        self._thread.start()

    def wake(self, end: JournalEnd) -> None:
        """Send everything up to `end`, the new end of the journal."""
        with self._changed:
            if end != self._end:
                self._end = end
                self._changed.notify()

    def take_progress(self) -> tuple[JournalPosition, OutputCounts]:
        """The position, and the counts since the previous call. Commit both in one transaction."""
        with self._changed:
            counts, self._counts = self._counts, OutputCounts()
            return self._position, counts

    def before_drop(self, segment: int, path: Path) -> None:
        """Count the unsent incidents of a segment that is about to be deleted as dropped, and skip it."""
        with self._changed:
            if self._position.segment <= segment:
                offset = self._position.offset if self._position.segment == segment else 0
                self._counts.dropped["journal"] += count_incidents(path, offset)
                self._position = JournalPosition(segment + 1, 0, 0)
                self._changed.notify()

    @property
    def up(self) -> bool:
        return self._failures == 0

    def lag(self, now: float) -> float:
        """Age in seconds of the oldest unsent incident; 0 if all are sent."""
        oldest = self._oldest_unsent
        return max(0.0, now - oldest) if oldest is not None else 0.0

    def stop(self, seconds: float = 0.0) -> None:
        """Stop sending. Waits at most `seconds` for a request in progress."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None and seconds:
            self._thread.join(seconds)

    # -- the thread

    def _run(self) -> None:
        while not self._stopped:
            try:
                batch = self._next_batch()
                if batch.records:
                    self._send(batch)
                else:
                    self._advance(batch)
            except OSError as error:
                self._count_failure("journal", f"the journal cannot be read: {error}")
                self._wait(ERROR_SECONDS)
            except Exception as error:
                self._count_failure("bug", f"failed: {error!r}; please report it")
                self._wait(ERROR_SECONDS)

    def _next_batch(self) -> Batch:
        """The next incidents to send. Without any, waits for a change and returns a batch without records."""
        with self._changed:
            start, end = self._position, self._end
        try:
            position = valid_position(self._folder, start)
            batch = read_batch(self._folder, position, end, self._settings.batch)
        except FileNotFoundError:  # deleted in the meantime: by `before_drop`, which moved the position, or by a user
            batch = Batch(start, start, ())
        else:
            if position != start:
                self._log("warning", "the journal was replaced or truncated; sending all that it holds")
                batch = replace(batch, start=start)
        self._oldest_unsent = _record_time(batch.records[0].record, self._clock()) if batch.records else None
        if batch.start == batch.end:
            with self._changed:
                if self._end == end and self._position == start and not self._stopped:
                    self._changed.wait()
        return batch

    def _send(self, batch: Batch) -> None:
        """Send a batch until the receiver accepts or refuses it, or the position moves."""
        while not self._stopped and self._position == batch.start:
            attempt = self._attempt(batch)
            if attempt.outcome == "sent":
                self._mark_sent(batch, attempt)
                return
            if attempt.outcome != "refused":
                self._wait(attempt.wait_seconds)
            elif len(batch.records) > 1:
                batch = batch.first(len(batch.records) // 2)  # one record is bad, or there are too many
            else:
                self._advance(batch, refused=1)
                return

    def _attempt(self, batch: Batch) -> Attempt:
        settings, now = self._settings, self._clock()
        records = [without_secrets(entry.record) for entry in batch.records]
        try:
            request_format, url = self._request_format(), read_url(settings)
            headers = read_headers(settings)
            context = self._contexts.get() if url.tls else None
        except (OSError, ValueError) as error:
            self._count_failure("settings", f"nothing can be sent: {error}")
            return Attempt("misconfigured", self._retry_delay("misconfigured"))
        body, own_headers = request_format.request(records, now)
        try:
            response = request("POST", url, headers | own_headers, body, context=context, seconds=settings.timeout)
        except RequestFailed as error:
            self._count_failure(error.reason, f"{url.origin}: {error}")
            return Attempt("retry", self._retry_delay("retry"))
        result = classify(response.status)
        if result.outcome == "sent":
            return Attempt("sent", 0.0, *request_format.rejected(response))
        message = f"{url.origin} answered {response.status}{_body_text(response)}{_advice(result, response)}"
        self._count_failure(result.reason, message)
        return Attempt(result.outcome, max(self._retry_delay(result.outcome), retry_after(response.headers, now)))

    def _mark_sent(self, batch: Batch, attempt: Attempt) -> None:
        count = len(batch.records)
        rejected = min(max(attempt.rejected, 0), count)
        if rejected or attempt.message:
            self._log(
                "warning", f"the receiver rejected {rejected} of {count} incidents: {_printable(attempt.message)}"
            )
        if self._failures:
            self._log("info", "sending works again")
        self._failures, self._logged_reason = 0, ""
        with self._changed:
            self._counts.last_success = self._clock()
            if self._position == batch.start:  # else `before_drop` has counted them as dropped
                self._counts.sent += count - rejected
        self._advance(batch, refused=rejected)

    def _advance(self, batch: Batch, *, refused: int = 0) -> None:
        """Move the position to the end of a batch, unless `before_drop` has moved it already."""
        with self._changed:
            if refused:
                self._counts.dropped["refused"] += refused
            if batch.unreadable:
                self._counts.dropped["unreadable"] += 1
            if self._position == batch.start:
                self._position = batch.end

    def _count_failure(self, reason: str, message: str) -> None:
        """Count a failure, and log it if the previous one had another reason."""
        with self._changed:
            self._failures += 1
            self._counts.failed[reason] += 1
        if reason != self._logged_reason:
            self._logged_reason = reason
            self._log("warning", message)

    def _retry_delay(self, outcome: Outcome) -> float:
        retry = self._settings.retry
        failures = 64 if outcome == "misconfigured" else max(self._failures, 1)  # 64: the longest delay
        return retry_delay(failures, retry.first, retry.most, self._random.random())

    def _wait(self, seconds: float) -> None:
        """Wait, but return early when the position moves or the output is stopped."""
        deadline = time.monotonic() + seconds
        with self._changed:
            position = self._position
            while not self._stopped and self._position == position and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)


def _record_time(record: Mapping[str, Any], now: float) -> float:
    """When a record was written, by the node's clock; `now` for one without a valid time."""
    try:
        return datetime.fromisoformat(str(record.get("recorded_time") or record.get("time"))).timestamp()
    except ValueError:
        return now


def _body_text(response: Response) -> str:
    text = _printable(response.body.decode("utf-8", "replace")).strip()
    return f": {text}" if text else ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:MAX_LOGGED_CHARS])


def _advice(result: Classified, response: Response) -> str:
    if result.outcome == "refused":
        return "; the incidents that it refuses are dropped"
    if response.status in (301, 302, 303, 307, 308):
        return "; redirects are not followed, set url to the final address"
    return "; retried until the configuration is fixed" if result.outcome == "misconfigured" else ""
