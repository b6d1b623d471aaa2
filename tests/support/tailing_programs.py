"""Programs of what jobs, rotation and a node do, as plain data: how they begin, and steps with their arguments, each drawn
from a domain. `tailing_run` takes the steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from exporter.core.matching.pipeline import Pipeline
from tests.support.folder_of_logs import Files
from tests.support.memory_files import MemoryFiles
from tests.support.memory_hints import Hints
from tests.support.tailing import real_pipeline
from tests.support.tailing_run import KEPT, NAMES, Meanwhile, Miscounted, Numbers, Run

STEPS_OF_ROTATION = 5  # at most
MOST_STEPS = 40


@dataclass(frozen=True)
class OneOf:
    values: Sequence[Any]

    def draw(self, chance: random.Random) -> Any:
        return chance.choice(self.values)


@dataclass(frozen=True)
class Between:
    low: int
    high: int

    def draw(self, chance: random.Random) -> int:
        return chance.randint(self.low, self.high)


@dataclass(frozen=True)
class Either:
    """One of some values, or a number: as often."""

    values: OneOf
    numbers: Between

    def draw(self, chance: random.Random) -> Meanwhile:
        return chance.choice((self.values, self.numbers)).draw(chance)


@dataclass(frozen=True)
class Several:
    count: int
    of: Either

    def draw(self, chance: random.Random) -> list[Meanwhile]:
        return [self.of.draw(chance) for _ in range(self.count)]


Domain = OneOf | Between | Several
NAME = OneOf(NAMES)
COUNT = OneOf((1, 2, 5, 10, 20, 60))  # lines: more than are needed to know a file by, and fewer
CUT = OneOf((0, 3, 9, 17))
YES_OR_NO = OneOf((True, False))
CALL = Between(0, 150)
PLAN = Several(STEPS_OF_ROTATION, Either(OneOf(("nothing", "commit", "crash")), CALL))

BEGIN: Mapping[str, Domain] = {
    "logs": OneOf(
        (  # what the two are called, and the globs
            (("a.log", "b.log"), ("*.log",)),
            (("a.log", "b.log"), ("*.log*",)),
            (("a.log", "b.log"), ("**/*.log",)),
            (("a.log", "b.log"), ("?.log",)),
            (("job.1.log", "job.2.log"), ("*.log", "*.log.*")),
            (("job.log", "job.log.err"), ("*.log*",)),
            (("rank-0.log", "rank-1.log"), ("rank-*.log",)),
        )
    ),
    "open_files": OneOf((8, 1024)),
    "reuses_inodes": YES_OR_NO,
    "inotify": OneOf(("none", "prompt", "late", "lossy")),
}
STEPS: Mapping[str, Mapping[str, Domain]] = {
    "write": {"name": NAME, "count": COUNT, "cut": CUT},
    "open": {"name": NAME, "append": YES_OR_NO},
    "write_to_what_is_open": {"name": NAME, "count": COUNT, "cut": CUT},
    "link": {"name": NAME},
    "rename": {"name": NAME, "create": YES_OR_NO, "plan": PLAN},
    "copytruncate": {"name": NAME, "again": OneOf((0, 1, 5, 20, 60)), "plan": PLAN},
    "replace": {"name": NAME, "keeps_time": YES_OR_NO, "plan": PLAN},
    "truncate": {"name": NAME},
    "delete": {"name": NAME},
    "compress": {"name": NAME, "number": Between(1, KEPT), "seen": YES_OR_NO},
    "poll": {"seconds": OneOf((0.05, 0.3, 1.2, 5.5, 11.0)), "times": Between(1, 3)},
    "commit": {},
    "crash": {},
    "stop": {},
    "fail": {"call": CALL, "error": OneOf(("EIO", "ESTALE", "EMFILE", "ENOMEM"))},
}


class Step(NamedTuple):
    what: str
    arguments: Mapping[str, Any]


class Program(NamedTuple):
    begin: Mapping[str, Any]
    steps: Sequence[Step]


def drawn(domains: Mapping[str, Domain], chance: random.Random) -> dict[str, Any]:
    return {name: domain.draw(chance) for name, domain in domains.items()}


def program(chance: random.Random) -> Program:
    """A random one."""
    whats = chance.choices(list(STEPS), k=chance.randint(1, MOST_STEPS))
    return Program(drawn(BEGIN, chance), [Step(what, drawn(STEPS[what], chance)) for what in whats])


def run(files: Files, what: Program, pipeline: Callable[[int], Pipeline] = real_pipeline) -> None:
    """Run a program. Raises Miscounted."""
    with files.in_place():
        names, globs = what.begin["logs"]
        one = Run(
            files,
            pipeline,
            names=dict(zip(NAMES, names, strict=True)),
            globs=globs,
            open_files=what.begin["open_files"],
        )
        if isinstance(files, MemoryFiles):
            files.now = lambda: one.node.now
            if what.begin["inotify"] != "none":
                one.node.watch_by(lambda: Hints(files, what.begin["inotify"]))
        try:
            one.begin()
            for step in what.steps:
                one.take(step.what, step.arguments)
            one.end()
        finally:
            one.close()
            files.close()


def run_in_memory(what: Program) -> None:
    run(MemoryFiles(reuses_inodes=what.begin["reuses_inodes"]), what, Numbers)


def miscounted(what: Program, run: Callable[[Program], None]) -> str:
    """What a program loses or doubles; nothing if it is counted exactly."""
    try:
        run(what)
    except Miscounted as what_was:
        return str(what_was)
    return ""


def shortened(what: Program, run: Callable[[Program], None]) -> Program:
    """A program that is miscounted still, without the steps that it does not need."""
    at = 0
    while at < len(what.steps):
        shorter = Program(what.begin, [*what.steps[:at], *what.steps[at + 1 :]])
        if miscounted(shorter, run):
            what = shorter
        else:
            at += 1
    return what
