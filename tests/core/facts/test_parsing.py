"""Values of facts: short, printable and alike, however they are spelled."""

import pytest

from exporter.core.facts import parsing


@pytest.mark.parametrize(
    "placeholder", ["GPU-????????-????-????-????-????????????", "??.??.??.??.??", "0", "0x0", "0000000000000000", " \n"]
)
def test_a_placeholder_is_not_an_identity(placeholder: str) -> None:
    assert parsing.identity(placeholder) is None


@pytest.mark.parametrize("garbage", ["", "\n", "MI2\x0010", "\x1b[31mMI210", "one\ntwo", "x" * 201, "\\xff\x00"])
def test_garbage_is_not_a_value(garbage: str) -> None:
    assert parsing.single_line(garbage) is None


def test_versions_are_sorted_as_versions() -> None:
    assert parsing.sorted_versions(["6.10.0", "6.2.0", "5.7", "6.2.0"]) == ["5.7", "6.2.0", "6.10.0"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("16\n", 16), ("0x1F", 31), ("007", 7), ("", None), ("1 2", None), ("-1", None), ("\u0663", None), (None, None)],
)
def test_a_number_stands_alone(text: str | None, value: int | None) -> None:
    assert parsing.number(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("Y\n", "true"), ("1", "true"), ("N\n", "false"), ("off", "false"), ("2", None)]
)
def test_a_switch_is_on_or_off_however_the_kernel_spells_it(text: str, value: str | None) -> None:
    assert parsing.on_or_off(text) == value


def test_the_word_in_brackets_is_the_one_that_was_chosen() -> None:
    assert parsing.bracketed_word("[none] integrity confidentiality\n") == "none"
    assert parsing.bracketed_word("always madvise never\n") is None


@pytest.mark.parametrize(
    ("count", "text"), [(206141652992, "192 GiB"), (256 << 20, "256 MiB"), (0, None), (None, None)]
)
def test_a_size_is_rounded_to_what_was_sold(count: int | None, text: str | None) -> None:
    assert parsing.size(count) == text
