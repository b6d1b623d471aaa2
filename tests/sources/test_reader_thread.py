"""A reader thread that is ended while it waits for a file system."""

from threading import Event

from exporter.sources.calls import Lanes, ask
from exporter.sources.reader_thread import ReaderThread


def test_a_thread_that_was_left_alone_closes_its_sources_when_its_call_returns() -> None:
    """An exception that ends the thread would fail the test: pytest reports it."""
    thread = ReaderThread(Lanes(), lambda: None)
    answer, closed = Event(), Event()

    def close() -> None:
        ask("", closed.set)  # as the watch of a source joins its observer

    thread.begin("source", lambda: ask("", answer.wait))
    while not thread.calls.waiting():
        thread.is_done(0.01)
    thread.end([close])
    answer.set()
    assert closed.wait(60)
    thread._thread.join(60)
    assert not thread.is_alive
