"""The table of logs: who has an inode's number, and what is left of those that are done with."""

from __future__ import annotations

from exporter.sources.files.checkpoints import Checkpoints
from exporter.sources.files.contents import NOWHERE, Inode
from exporter.sources.files.log import Log
from exporter.sources.files.states import LogPosition

FILE = (1, 7)


def position(path: str, file: Inode = FILE, called: tuple[str, ...] = ()) -> LogPosition:
    return LogPosition(path=path, device=file[0], inode=file[1], called=called)


def followed(table: Checkpoints, path: str) -> Log:
    log = Log(f"source:{path}", path, path, position(path))
    table.put(log.origin, log)
    return log


def test_a_number_is_that_of_the_log_before_again_when_the_last_one_gives_it_back() -> None:
    table = Checkpoints()
    first, second = followed(table, "/a"), followed(table, "/b")
    assert table.log_at(FILE) is second
    table.release(second.origin, second.position)
    assert table.log_at(FILE) is first
    table.remove(first.origin)
    assert table.log_at(FILE) is None


def test_a_log_that_was_dropped_takes_no_number_and_no_path() -> None:
    table = Checkpoints()
    log = followed(table, "/a")
    table.remove(log.origin)
    table.set_file(log.origin, log.position)
    table.add_names(log.origin, position("/a", called=("/b",)))
    assert table.log_at(FILE) is None
    assert table.logs_of("/b") == []


def test_one_row_is_followed_or_done_with() -> None:
    table = Checkpoints()
    log = followed(table, "/a")
    table.put("/a", position("/a", called=("/b",)))
    assert (table.followed_count, list(table.followed()), table.knows(log)) == (0, [], False)
    assert table.log_at(FILE) is None
    assert list(table.done_with("/c", FILE)) == table.done_of("/b") == table.lingering() == ["/a"]
    again = followed(table, "/a")
    assert (table.followed_count, table.log_at(FILE), table.lingering()) == (1, again, [])
    assert list(table.done_with("/a", FILE)) == []


def test_what_was_given_up_can_be_told_by_its_path_only_and_does_not_linger() -> None:
    table = Checkpoints()
    table.put("/a", position("/a", NOWHERE))
    assert list(table.done_with("/a", FILE)) == ["/a"]
    assert list(table.done_with("/b", FILE)) == table.lingering() == []


def test_the_longest_done_are_forgotten_first_but_no_log_that_is_followed() -> None:
    table = Checkpoints()
    log = followed(table, "/followed")
    for path in ("/a", "/b", "/c"):
        table.put(path, position(path))
    assert [origin for origin, _ in table.forget_oldest_done(1)] == ["/a", "/b"]
    assert table.next_origin("/a") == "/a"
    assert table.next_origin("/c") == "/c#1"
    assert table.log_at(FILE) is log


def test_an_early_log_of_a_path_is_forgotten_and_the_numbers_go_on() -> None:
    table = Checkpoints()
    for number in range(3):
        table.put(table.next_origin("/a"), position("/a", (1, number + 1)))
    assert [origin for origin, _ in table.forget_oldest_done(1)] == ["/a", "/a#1"]
    assert table.next_origin("/a") == "/a#3"
