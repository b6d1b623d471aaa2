"""How often one has to turn from file to file to follow what happens to a log: docs/internals/tailing.md names the files that
decide, in order, and those that they ask.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from exporter.sources import files
from tests.support.memory_files import MemoryFiles
from tests.support.tailing import Node, lines
from tests.support.tailing_run import Numbers

ROOM = str(Path(files.__file__).parent)
PAGE = (Path(__file__).parents[3] / "docs/internals/tailing.md").read_text().partition("## The modules")[2]
ORDER = [name for row in re.findall(r"^\|(.*?)\|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)\.py`", row)]
DECIDE = ORDER[ORDER.index("resolver") :]
MOST_RETURNS = 5  # to a file that decides
MOST_STOPS = 210  # at all, at those that are asked too


def test_the_page_names_each_module_after_those_that_it_imports() -> None:
    assert sorted(ORDER) == sorted(path.stem for path in Path(ROOM).glob("*.py") if path.stem != "__init__")
    for name in ORDER:
        imports = set(re.findall(r"sources\.files\.(\w+) import", Path(ROOM, f"{name}.py").read_text()))
        assert imports <= set(ORDER[: ORDER.index(name)]), name


def stops(run: Callable[[], object]) -> Counter[str]:
    """How often each file of the tailer is entered from another file of it, or from outside."""
    entered: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(ROOM):
            caller = frame.f_back
            while caller is not None and "contextlib" in caller.f_code.co_filename:
                caller = caller.f_back
            if caller is None or caller.f_code.co_filename != path:
                entered[Path(path).stem] += 1

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return entered


def append(memory: MemoryFiles, name: str, data: bytes) -> None:
    if not memory.exists(name):
        memory.touch(name)
    file = memory.open(name, append=True)
    file.write(data)
    file.close()


def begins(memory: MemoryFiles, node: Node) -> None:
    append(memory, "job.log", lines(1, 2))


def is_renamed(memory: MemoryFiles, node: Node) -> None:
    begins(memory, node)
    node.rescan().poll(10.0)
    memory.rename("job.log", "job.log.1")
    append(memory, "job.log.1", lines(3))


def is_renamed_and_compressed_while_down(memory: MemoryFiles, node: Node) -> None:
    begins(memory, node)
    node.rescan().commit()
    append(memory, "job.log", lines(3))
    memory.rename("job.log", "job.log.1")
    memory.overwrite("job.log.1.gz", gzip.compress(memory.read("job.log.1")))
    memory.give_time_of("job.log.1.gz", "job.log.1")
    memory.remove("job.log.1")
    node.crash()


@pytest.mark.parametrize("happens", [begins, is_renamed, is_renamed_and_compressed_while_down])
def test_a_log_returns_to_no_file_that_decides_more_than_five_times(
    happens: Callable[[MemoryFiles, Node], None],
) -> None:
    memory = MemoryFiles(reuses_inodes=False)
    with memory.in_place():
        node = Node(memory.path("*.log"), exclude=("*.gz",), pipeline=Numbers)
        memory.now = lambda: node.now
        try:
            node.rescan()
            idle = stops(lambda: node.poll(10.0))  # in any poll
            happens(memory, node)
            entered = stops(lambda: node.poll(10.0)) - idle
        finally:
            node.close()
            memory.close()
    assert {name: count for name, count in entered.items() if name in DECIDE and count - 1 > MOST_RETURNS} == {}
    assert entered.total() <= MOST_STOPS
