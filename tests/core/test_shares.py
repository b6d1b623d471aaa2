from exporter.core.shares import in_turn, most_first


def test_owners_come_in_turn() -> None:
    assert list(in_turn("aaabcab", lambda letter: ord(letter) - 97)) == list("abcabaa")
    assert list(in_turn("aabc", lambda letter: ord(letter) - 97, [1, 0])) == list("cbaa")


def test_who_has_most_gives_up_the_first_one() -> None:
    items = ["b1", "a1", "a2", "b2", "a3", "a4", "c1"]
    assert list(most_first(items, lambda item: ord(item[0]))) == ["a1", "a2", "b1", "a3", "b2", "a4", "c1"]
