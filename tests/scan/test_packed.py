"""What is no text whatever its name says is named, with the command that reads it, instead of being searched in vain."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from pathlib import Path

import pytest

from exporter.scan.decompress import Unpacked, unpacker_of
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


def test_a_small_archive_that_asks_for_gigabytes_is_refused(tmp_path: Path) -> None:
    data = bytearray(lzma.compress(LOG))
    size = (data[12] + 1) * 4  # of the block's header, whose last four bytes are its CRC-32
    data[data.index(b"\x21\x01", 12) + 2] = 40  # LZMA2 with a dictionary of 4 GiB
    data[12 + size - 4 : 12 + size] = zlib.crc32(data[12 : 12 + size - 4]).to_bytes(4, "little")
    path = tmp_path / "slurm-1.out.xz"
    path.write_bytes(data)
    unpacker = unpacker_of(str(path))
    assert unpacker is not None
    with path.open("rb") as packed, pytest.raises(OSError, match="Memory usage limit exceeded"):
        Unpacked(packed, unpacker).read(1)
