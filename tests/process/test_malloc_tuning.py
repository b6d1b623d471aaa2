"""Parts of logs are read into memory that is used again. Mapping each anew cost as much CPU as matching its lines."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from exporter.process import malloc_tuning
from exporter.sources.files.offering import CHUNK_BYTES

malloc_tuning.limit_retained_memory()
malloc_tuning.release_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytes(bytearray(CHUNK_BYTES))  # takes its pages
before = faults()
for _ in range(100):
    bytes(bytearray(CHUNK_BYTES))
print(faults() - before, 100 * CHUNK_BYTES // resource.getpagesize())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_a_part_of_a_log_takes_no_new_pages() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    taken, pages = map(int, done.stdout.split())
    assert taken < pages / 10
