"""YAML as people mean it, and the place of whatever they got wrong."""

from __future__ import annotations

import pytest

from exporter.core.text.problems import InvalidInput, key_path
from exporter.core.text.yaml_text import MAX_CHARS, MAX_DEPTH, parse


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        parse(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("NO", "NO"), ("y", "y"), ("off", "off"),  # Norway and friends
        ("010", "010"), ("0x1f", "0x1f"), ("0o7", "0o7"), ("12:30", "12:30"), ("1_000", "1_000"),
        ("2025-01-02", "2025-01-02"), ("6.2.4", "6.2.4"), ("<<", "<<"), ("=", "="),
        ("true", True), ("False", False), ("TRUE", True), ("~", None), ("null", None), ("", None),
        ("0", 0), ("-7", -7), ("+7", 7), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-1.", -1.0),
        ("'7'", "7"), ('"true"', "true"), ("''", ""), ('"~"', "~"),
        ("9" * 5000, "9" * 5000),  # int() refuses it
    ],
)  # fmt: skip
def test_a_scalar_is_what_it_looks_like_to_a_person(text: str, value: object) -> None:
    assert parse(f"key: {text}", "f.yaml").data == {"key": value}


@pytest.mark.parametrize("block", ["|\n  12\n", ">\n  12\n"])
def test_a_block_scalar_is_always_text(block: str) -> None:
    assert parse(f"key: {block}", "f.yaml").data == {"key": "12\n"}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse("1: a\nno: b\n~: c\n", "f.yaml").data == {"1": "a", "no": "b", "~": "c"}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n"])
def test_an_empty_document_is_none(text: str) -> None:
    assert parse(text, "f.yaml").data is None


def test_every_key_and_item_has_its_place() -> None:
    document = parse("a:\n  b: [x, y]\n", "f.yaml")
    assert document.locations == {
        (): (1, 1),
        ("a",): (1, 1),
        ("a", "b"): (2, 3),
        ("a", "b", 0): (2, 7),
        ("a", "b", 1): (2, 10),
    }
    assert str(document.problem(("a", "b", 1), "is wrong")) == "f.yaml:2:10: a.b[1]: is wrong"


def test_a_problem_with_what_is_missing_is_at_the_nearest_place_above() -> None:
    document = parse("a:\n  b: 1\n", "f.yaml")
    assert str(document.problem(("a", "c", "d"), "missing; add it")) == "f.yaml:1:1: a.c.d: missing; add it"


def test_a_path_of_keys_is_written_as_people_write_it() -> None:
    assert key_path(("signatures", 0, "patterns", 12)) == "signatures[0].patterns[12]"


def test_a_duplicate_key_is_reported_with_both_lines() -> None:
    assert problems("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n") == [
        "f.yaml:4:3: b.c: given twice (first in line 3); keep one",
        "f.yaml:5:1: a: given twice (first in line 1); keep one",
    ]


def test_aliases_tags_and_keys_that_are_no_text_are_refused_all_at_once() -> None:
    text = "a: &x [1]\nb: *x\nc: !env HOME\nd: !!binary aGk=\n? [k]\n: 1\n"
    assert problems(text) == [
        "f.yaml:2:4: b: aliases (*name) are not allowed here; write the value out",
        "f.yaml:3:4: c: tags (!name) are not allowed here; remove it, and quote what is to be text",
        "f.yaml:4:4: d: tags (!name) are not allowed here; remove it, and quote what is to be text",
        "f.yaml:5:3: a key must be plain text",
    ]


def test_a_value_that_holds_itself_is_refused() -> None:
    assert problems("a: &a [*a]") == ["f.yaml:1:8: a[0]: aliases (*name) are not allowed here; write the value out"]


def test_a_billion_laughs_cost_nothing() -> None:
    laughs = "a0: &a0 [ha, ha]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert len(problems(laughs)) == 118


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_million_levels_are_one_problem_and_no_crash(opening: str) -> None:
    first, *more = problems(opening * 1_000_000)
    assert first.endswith(f"nested deeper than {MAX_DEPTH} levels; flatten it")
    assert more == []


def test_the_deepest_nesting_that_is_allowed_is_read() -> None:
    text = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    assert parse(text, "f.yaml").data is not None


def test_a_second_document_is_refused() -> None:
    assert problems("a: 1\n---\nb: 2\n") == ["f.yaml:2:1: a second document; split it into several files"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: b: c", "f.yaml:1:5: "),
        ("a: [1\nb: 2", "f.yaml:2:2: "),
        ("a: 'x", "f.yaml:1:6: "),
        ("\ta: 1", "f.yaml:1:1: "),
    ],
)
def test_invalid_yaml_is_reported_with_its_location(text: str, place: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"{place}not YAML: ")


@pytest.mark.parametrize("text", ["\x00", "a: \x07", "a: \ud800"])
def test_characters_that_no_text_has_are_refused(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("f.yaml:1:1: not YAML: ")


def test_a_text_of_megabytes_is_refused_unread() -> None:
    assert problems("#" * (MAX_CHARS + 1)) == [f"f.yaml:1:1: over {MAX_CHARS} characters; split it into several files"]
