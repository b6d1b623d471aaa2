"""Errors that the web server's libraries log become one short line each, rate limited."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from exporter.process.own_log import MAX_PER_MINUTE
from exporter.web.serving import MAX_ERROR_CHARS, redirect_errors
from tests.web.serving import ADMINISTRATOR, Node, ask, serving

LOGGERS = [logging.getLogger(name) for name in ("asyncio", "uvicorn.error")]


@pytest.fixture
def said() -> Iterator[list[str]]:
    lines: list[str] = []
    redirect_errors(lines.append)
    yield lines
    for logger in LOGGERS:
        logger.handlers, logger.propagate = [], True


def fail(words: str) -> None:
    try:
        raise ValueError(words)
    except ValueError:
        for logger in LOGGERS:
            logger.exception("Fatal error: data_received() failed.\nprotocol: <object at 0x7f>")


def test_an_error_is_one_line_that_says_where_it_was_raised(said: list[str]) -> None:
    fail("x")
    assert len(said) == 2  # one of each library
    assert said[0].startswith("web server: Fatal error: data_received() failed. at ")
    assert f"{__file__}:" in said[0]
    assert said[0].endswith(": ValueError('x'); please report it")


def test_a_line_is_short_and_printable_whatever_the_client_sent(said: list[str]) -> None:
    fail("\x1b[2J\u202e" + "y" * 100_000)
    assert all(line.isprintable() and len(line) < MAX_ERROR_CHARS + 50 for line in said)


def test_a_flood_of_errors_is_rate_limited(said: list[str]) -> None:
    for number in range(10_000):
        fail(f"{number}")
    assert len(said) <= 2 * MAX_PER_MINUTE


def test_an_error_in_our_own_code_is_answered_with_500_and_logged_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    node = Node()
    node.on_reload = lambda: 1 / 0  # type: ignore[assignment, return-value]
    with serving(node, client=ADMINISTRATOR) as server:
        assert [ask(server, "/-/reload", "POST").status for _ in range(3)] == [500] * 3
        assert ask(server, "/metrics").status == 200
    out, err = capfd.readouterr()
    assert (out, err.count("\n"), err.count("ZeroDivisionError")) == ("", 1, 1)
