"""Random programs of what jobs, rotation and the node do, against a model of which lines were written: each line is counted
exactly once. On real files, with the real pipeline; and, many more of them, on files in memory, where any system call may
fail. `benchmarks/tailing_programs.py` runs as many as one has time for.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.folder_of_logs import RealFiles
from tests.support.tailing_programs import Program, Step, miscounted, program, run, run_in_memory, shortened

# Programs that were miscounted once.
FOUND = {
    "a path is taken by the next log after the one before has moved to a link of it": Program(
        {"logs": (("a.log", "b.log"), ("*.log",)), "open_files": 1024, "reuses_inodes": False, "inotify": "none"},
        [
            Step("open", {"name": "b", "append": True}),
            Step("crash", {}),
            Step("link", {"name": "b"}),
            Step("rename", {"name": "b", "create": True, "plan": [120, 80, "nothing", 52, "nothing"]}),
            Step("copytruncate", {"name": "b", "again": 1, "plan": ["nothing", 41, "nothing", "nothing", 38]}),
            Step("copytruncate", {"name": "a", "again": 20, "plan": [66, 118, "nothing", 132, 138]}),
            Step("write_to_what_is_open", {"name": "b", "count": 1, "cut": 0}),
            Step("rename", {"name": "b", "create": True, "plan": ["commit", "crash", 45, 84, 58]}),
        ],
    ),
    "a log is compressed while no process looks, and the next one stalls": Program(
        {"logs": (("a.log", "b.log"), ("*.log*",)), "open_files": 8, "reuses_inodes": False, "inotify": "none"},
        [
            Step("truncate", {"name": "a"}),
            Step("copytruncate", {"name": "a", "again": 20, "plan": [95, "commit", "commit", "nothing", "nothing"]}),
            Step("write", {"name": "a", "count": 10, "cut": 3}),
            Step("delete", {"name": "b"}),
            Step("rename", {"name": "a", "create": False, "plan": [150, "crash", 119, "commit", "crash"]}),
            Step("compress", {"name": "a", "number": 1, "seen": False}),
            Step("crash", {}),
        ],
    ),
    "a log that was found under a rotated name is compressed and renamed": Program(
        {"logs": (("a.log", "b.log"), ("*.log*",)), "open_files": 1024, "reuses_inodes": True, "inotify": "none"},
        [
            Step("delete", {"name": "a"}),
            Step("write", {"name": "a", "count": 2, "cut": 9}),
            Step("rename", {"name": "a", "create": True, "plan": [32, "crash", 61, 73, "commit"]}),
            Step("copytruncate", {"name": "a", "again": 1, "plan": [41, 134, 109, "nothing", 66]}),
            Step("delete", {"name": "a"}),
            Step("compress", {"name": "a", "number": 2, "seen": False}),
            Step("copytruncate", {"name": "a", "again": 5, "plan": ["crash", "nothing", 107, "commit", 91]}),
        ],
    ),
    "a log with two names is truncated, copied, compressed and renamed": Program(
        {"logs": (("a.log", "b.log"), ("*.log*",)), "open_files": 1024, "reuses_inodes": False, "inotify": "none"},
        [
            Step("copytruncate", {"name": "b", "again": 5, "plan": ["crash", 45, "commit", 28, "crash"]}),
            Step("link", {"name": "b"}),
            Step("truncate", {"name": "b"}),
            Step("write", {"name": "b", "count": 20, "cut": 9}),
            Step("copytruncate", {"name": "a", "again": 5, "plan": [40, "commit", 116, "crash", "crash"]}),
            Step("copytruncate", {"name": "b", "again": 1, "plan": ["crash", 141, 86, "crash", 61]}),
            Step("compress", {"name": "b", "number": 1, "seen": True}),
            Step("copytruncate", {"name": "b", "again": 5, "plan": ["commit", 143, 119, 108, "commit"]}),
        ],
    ),
    "a copy waits for the wrong one of two logs": Program(
        {
            "logs": (("job.log", "job.log.err"), ("*.log*",)),
            "open_files": 8,
            "reuses_inodes": False,
            "inotify": "prompt",
        },
        [
            Step("copytruncate", {"name": "b", "again": 0, "plan": ["crash", 115, 90, 11, 144]}),
            Step("write", {"name": "b", "count": 60, "cut": 0}),
            Step("copytruncate", {"name": "b", "again": 5, "plan": ["commit", "commit", "commit", 17, 110]}),
        ],
    ),
    "a copy takes the place of a log of which an earlier one has left the path": Program(
        {"logs": (("a.log", "b.log"), ("**/*.log",)), "open_files": 8, "reuses_inodes": True, "inotify": "late"},
        [
            Step("copytruncate", {"name": "b", "again": 60, "plan": [120, "nothing", 3, "nothing", 75]}),
            Step("replace", {"name": "b", "keeps_time": False, "plan": [103, 51, 96, "commit", "nothing"]}),
            Step("stop", {}),
            Step("truncate", {"name": "a"}),
        ],
    ),
    "inotify tells of a copy that takes the place of a log": Program(
        {"logs": (("a.log", "b.log"), ("?.log",)), "open_files": 8, "reuses_inodes": False, "inotify": "lossy"},
        [
            Step("copytruncate", {"name": "b", "again": 60, "plan": [127, "commit", "commit", 34, "nothing"]}),
            Step(
                "replace",
                {"name": "b", "keeps_time": False, "plan": ["nothing", "nothing", "commit", "crash", "nothing"]},
            ),
            Step("crash", {}),
        ],
    ),
    "a copy of a log that waits is found before the log begins": Program(
        {
            "logs": (("job.log", "job.log.err"), ("*.log*",)),
            "open_files": 8,
            "reuses_inodes": False,
            "inotify": "lossy",
        },
        [
            Step("copytruncate", {"name": "b", "again": 5, "plan": [27, "commit", "nothing", "crash", 130]}),
            Step("copytruncate", {"name": "b", "again": 0, "plan": ["nothing", "commit", "crash", 130, 129]}),
        ],
    ),
    "a log has found its bytes in a copy while that was compared with another log": Program(
        {
            "logs": (("job.log", "job.log.err"), ("*.log*",)),
            "open_files": 8,
            "reuses_inodes": False,
            "inotify": "lossy",
        },
        [
            Step("delete", {"name": "a"}),
            Step("copytruncate", {"name": "b", "again": 60, "plan": [46, 107, "crash", 68, "nothing"]}),
        ],
    ),
    "a look for rotated files fails, and the daemon is stopped before the next one": Program(
        {
            "logs": (("rank-0.log", "rank-1.log"), ("rank-*.log",)),
            "open_files": 8,
            "reuses_inodes": True,
            "inotify": "late",
        },
        [
            Step("write", {"name": "a", "count": 2, "cut": 0}),
            Step("rename", {"name": "b", "create": False, "plan": ["crash", 64, "nothing", "nothing", "crash"]}),
            Step("poll", {"seconds": 11.0, "times": 1}),
            Step("commit", {}),
            Step("copytruncate", {"name": "a", "again": 1, "plan": [25, 24, 133, 55, 93]}),
            Step("copytruncate", {"name": "a", "again": 0, "plan": ["nothing", "crash", "nothing", 119, "commit"]}),
            Step("crash", {}),
            Step("fail", {"call": 90, "error": "EIO"}),
            Step("stop", {}),
            Step("delete", {"name": "a"}),
        ],
    ),
}
ON_REAL_FILES = 100
IN_MEMORY = 300
MANY_IN_MEMORY = 2000


def counts_exactly(programs: int, run: Callable[[Program], None]) -> None:
    """The same programs each time: one in tens of thousands of others is miscounted (docs/internals/tailing.md)."""
    for seed in range(programs):
        what = program(random.Random(seed))
        if miscounted(what, run):
            short = shortened(what, run)
            raise AssertionError(f"{miscounted(short, run)}\n{short}")


def test_any_program_is_counted_exactly() -> None:
    counts_exactly(ON_REAL_FILES, lambda what: run(RealFiles(), what))


def test_any_program_in_memory_is_counted_exactly() -> None:
    counts_exactly(IN_MEMORY, run_in_memory)


@pytest.mark.parametrize("what", FOUND.values(), ids=FOUND)
def test_what_was_miscounted_once_is_counted_exactly(what: Program) -> None:
    run_in_memory(what)


@pytest.mark.heavy
def test_many_programs_in_memory_are_counted_exactly() -> None:
    counts_exactly(MANY_IN_MEMORY, run_in_memory)
