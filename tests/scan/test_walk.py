"""Which files are read: each once, in order, however many there are."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from exporter.scan.plan import Unread, expand
from exporter.scan.walk import RUN, files_below


def make(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return [str(folder / name) for name in names]


def test_files_come_in_order_with_folders_among_them(tmp_path: Path) -> None:
    in_order = make(tmp_path, "a/z", "a.log", "b", "b.d/1/x", "b.d/2", "c\udcff")
    assert list(expand([str(tmp_path)])) == in_order


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    a, b, c = make(tmp_path, "a", "sub/b", "sub/c")
    folder, sub = str(tmp_path), str(tmp_path / "sub")
    assert list(expand([folder, b, sub, f"{sub}/*", folder])) == [a, b, c]
    assert list(expand([c, f"{sub}/*", sub])) == [c, b]


def test_what_a_link_leads_to_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    (outside,) = make(tmp_path, "outside/x")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/link").symlink_to(tmp_path / "outside")
    logs = str(tmp_path / "logs")
    assert list(expand([logs])) == []
    assert list(expand([logs, f"{logs}/link"])) == [f"{logs}/link/x"]
    assert Path(outside).samefile(f"{logs}/link/x")


def test_a_link_that_cannot_be_followed_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "crash.log").touch()
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "dangling").symlink_to("gone")
    assert list(files_below(str(tmp_path))) == [str(tmp_path / name) for name in ("a", "b", "crash.log")]


def test_a_folder_that_is_gone_is_told_of(tmp_path: Path) -> None:
    (unread,) = expand([str(tmp_path / "none*")])
    assert unread == Unread(str(tmp_path / "none*"), "matches no file")
    (error,) = files_below(str(tmp_path / "none"))
    assert isinstance(error, OSError)
    assert error.filename == str(tmp_path / "none")


def test_a_file_is_found_however_deep_it_lies(deep_folder: Path) -> None:
    make(deep_folder, "z")
    first, second = expand([str(deep_folder)])
    assert str(first).endswith("d/d/deepest.log")
    assert second == str(deep_folder / "z")
    assert list(expand([f"{deep_folder}/**/*.log"])) == [first]


@pytest.mark.heavy
def test_a_folder_of_many_files_takes_little_more_than_their_names(tmp_path: Path) -> None:
    """So that a million names of 28 characters take some 30 MB."""
    number = 5 * RUN
    for count in range(number):
        os.close(os.open(tmp_path / f"slurm-{count:018d}.out", os.O_CREAT))
    tracemalloc.start()
    try:
        last = ""
        for found in expand([str(tmp_path), "/nowhere*"]):
            assert isinstance(found, Unread) or last < found
            last = found if isinstance(found, str) else last
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert last.endswith(f"{number - 1:018d}.out")
    assert peak < number * 40 + RUN * 120
