"""Files that a user names: none is waited for, and none is read without end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.store.safe_open import MAX_BYTES, read_text
from tests.support.bad_files import KINDS


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_not_a_file_of_bounded_size_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "named.yaml")
    with ThreadPoolExecutor(1) as reader:
        error = reader.submit(read_text, tmp_path / "named.yaml").exception(timeout=60)
    assert isinstance(error, OSError)
    assert error.filename == str(tmp_path / "named.yaml")


def test_a_file_as_large_as_the_bound_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * (MAX_BYTES - 2) + b"\r\n")
    assert len(read_text(path)) == MAX_BYTES - 1


def test_a_pipe_is_read_where_its_user_can_end_the_command(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    KINDS[0](path)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(path.write_text, "a: b\n")
        assert read_text(path, pipes=True) == "a: b\n"
