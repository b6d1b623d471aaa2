"""What is no text whatever its name says is named, with the command that reads it, instead of being searched in vain."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import pytest

from exporter.scan.plan import Task, Unread, plan

LOG = b"RuntimeError: HIP error: unspecified launch failure\n"


def zipped() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("slurm-1.out", LOG)
    return held.getvalue()


PACKED = {
    "zip": (zipped(), "unzip -p"),
    "gzip": (gzip.compress(LOG), "zcat"),
    "bzip2": (bz2.compress(LOG), "bzcat"),
    "xz": (lzma.compress(LOG), "xzcat"),
    "UTF-16": (LOG.decode().encode("utf-16"), "iconv"),
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_log_that_cannot_be_searched_as_it_is_is_named_with_what_to_do(kind: str, tmp_path: Path) -> None:
    data, do = PACKED[kind]
    path = tmp_path / "slurm-1.out.1"
    path.write_bytes(data)
    told = plan(str(path), "job")
    assert isinstance(told, Unread)
    assert not told.is_document
    assert kind in told.why
    assert do in told.why


def test_an_archive_is_known_by_its_name_and_read(tmp_path: Path) -> None:
    path = tmp_path / "slurm-1.out.gz"
    path.write_bytes(gzip.compress(LOG))
    assert plan(str(path), "job") == Task(str(path), "job", "plain")
