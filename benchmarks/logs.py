"""The logs that are scanned: written below .bench/, the same bytes each time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import ordinary
from benchmarks.crashes import OF_JOBS, OF_KERNELS, kernel_stamp

FOLDER = Path(__file__).resolve().parent.parent / ".bench"

_CRASH = (
    ":0:rocdevice.cpp            :2984: {n} us: [pid:196431 tid:0x{tid:012x}] Callback: Queue 0x{queue:012x} aborting"
    " with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest"
    " legal address. code: 0x29"
)
_XID = "{stamp} NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


def one_line() -> Path:
    """The path of a log of one ordinary line, for the time that the start takes."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "one-line.log"
    path.write_text("step 1\n")
    return path


def crash(number: int, dice: random.Random) -> str:
    """A line of an AMD runtime's abort, with addresses of its own."""
    tid, queue = (dice.randrange(0x7F0000000000, 0x800000000000) for _ in range(2))
    return _CRASH.format(n=number, tid=tid, queue=queue)


@dataclass(frozen=True, slots=True)
class Log:
    """What one log is like. `hits` is the share of its lines that show a crash."""

    kind: str = "training"
    hits: float = 0.00005
    long_lines: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.hits:.3%} crash lines{', lines of 2 kB' if self.long_lines else ''}"

    @property
    def source(self) -> str:
        return "kernel" if self.kind in {"kernel", *OF_KERNELS, *ordinary.OF_KERNELS} else "job"

    def written(self, megabytes: int) -> Path:
        """The path of the log, which is written if it is not there."""
        FOLDER.mkdir(exist_ok=True)
        path = (
            FOLDER
            / f"{self.kind.replace(' ', '-')}-{self.hits}-{'long' if self.long_lines else 'short'}-{megabytes}.log"
        )
        if not path.exists():
            unfinished = path.with_suffix(".part")
            with unfinished.open("w") as out:
                self._write(out.write, megabytes * 1_000_000)
            unfinished.rename(path)
        return path

    @property
    def sign(self) -> bytes:
        """What stands in its crash lines alone."""
        return b"NVRM: Xid" if self.kind == "kernel" else b"HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION"

    def _write(self, write: Callable[[str], int], size: int) -> None:
        dice = random.Random(1)
        usual, crash = _KINDS[self.kind]
        number = 0
        while size > 0:
            number += 1
            line = crash(number, dice) if dice.random() < self.hits else usual(number, dice)
            size -= write(line + (" tensor([" + "0.0312, " * 240 + "])" if self.long_lines else "") + "\n")


def _second(number: int) -> str:
    """When a job writes a line, at a thousand a second."""
    return f"{datetime(2026, 11, 21, 1, 2, tzinfo=UTC) + timedelta(seconds=number // 1000):%Y-%m-%d %H:%M:%S}"


def _training(number: int, dice: random.Random) -> str:
    return (
        f"[rank{number % 8}]: {_second(number)} INFO train.py:412 step {number} loss {dice.random():.4f}"
        f" lr 1.00e-04 grad_norm {dice.random():.3f} tokens/s {dice.randint(9000, 12000)}"
    )


def _cri(text: str, number: int) -> str:
    return f"{_second(number).replace(' ', 'T')}.{number % 1000 * 1_000_000 + 7919:09}Z stderr F {text}"


def _kernel(number: int, dice: random.Random) -> str:
    return f'{kernel_stamp(number, dice)} audit: type=1400 apparmor="ALLOWED" operation="open" pid={number % 32768}'


_KINDS: dict[str, tuple[Callable[[int, random.Random], str], Callable[[int, random.Random], str]]] = {
    "training": (_training, crash),
    "CRI": (lambda n, dice: _cri(_training(n, dice), n), lambda n, dice: _cri(crash(n, dice), n)),
    "kernel": (_kernel, lambda n, dice: _XID.format(stamp=kernel_stamp(n, dice))),
    **{kind: (line, crash) for kind, line in ordinary.OF_JOBS.items()},
    **{
        kind: (line, lambda n, dice: _XID.format(stamp=kernel_stamp(n, dice)))
        for kind, line in ordinary.OF_KERNELS.items()
    },
    **{kind: (_training, text) for kind, text in OF_JOBS.items()},
    **{kind: (_kernel, text) for kind, text in OF_KERNELS.items()},
}
