"""A pattern that runs out of time once is tried again: a machine that stood still says nothing about the pattern."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import regex

from exporter.core.expression import Expression


def expression_that_runs_out_of_time(times: int) -> Expression:
    expression = Expression("GPU fault")
    found = regex.search("GPU fault", "GPU fault")
    expression._compiled = Mock(search=Mock(side_effect=[*[TimeoutError] * times, found]))
    return expression


def test_what_is_found_at_the_second_try_counts() -> None:
    assert expression_that_runs_out_of_time(1).find("GPU fault")


def test_a_pattern_that_runs_out_of_time_twice_is_slow() -> None:
    with pytest.raises(TimeoutError):
        expression_that_runs_out_of_time(2).find("GPU fault")
