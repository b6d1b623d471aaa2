"""Folds a flood: of many matches of one signature close together in a log the earliest stay whole, the others are only
counted. In each later chunk one match is whole too, and stands for the others. Changes no incident: those keep the
earliest few whole anyway. Knows no bytes and no catalogue.
"""

import bisect
from collections.abc import Callable, Mapping, Sequence

from exporter.core.collectives import Waiting, merged
from exporter.core.model import MAX_KEPT_MATCHES, Match
from exporter.core.values import dataclass, field, replace

Fault = tuple[str | None, str | None]  # what tells two kernel incidents of one signature apart: GPU, who raised it
FloodKey = tuple[str, Fault, str | None]  # what distinguishes matches: signature, fault, rank
RunKey = tuple[str, Fault]  # signature, fault


@dataclass(slots=True)
class Run:
    """Matches without a gap between them: the index of a whole one, the times of the earliest few, how many more came.

    `index` is None until the chunk has a whole one. `whole`: all stay so.
    """

    index: int | None
    first: float
    last: float
    earliest: list[float]
    whole: bool
    more: int = 0
    ranks: set[str] = field(default_factory=set)
    waiting: Waiting = ()


NO_RUNS: Mapping[RunKey, Run] = {}


class Flood:
    """The runs of one chunk, whose whole matches are appended to `matches`.

    `window` is the silence that ends an episode in seconds; None leaves every match whole. So does `is_mixed` for a
    signature of which one line may be graver than another. `before`: what `end` returned for the log's chunk before.
    """

    def __init__(
        self,
        matches: list[Match],
        window: float | None,
        is_mixed: Callable[[str], bool] = lambda _signature: False,
        before: Mapping[RunKey, Run] = NO_RUNS,
    ) -> None:
        self._is_mixed = is_mixed
        self._matches = matches
        self._window = -1.0 if window is None else window
        self._runs = dict(before)
        self.folded = 0  # lines that were only counted

    def takes(self, shown: Sequence[FloodKey], time: float, waiting: Waiting = ()) -> bool:
        """Whether what one more line shows, behind all others in the chunk, is only counted; if not, it is added whole.

        waiting: where its rank waits in a collective.
        """
        folded = []
        for signature, fault, rank in shown:
            run = self._runs.get((signature, fault))
            if (
                run is None
                or run.whole
                or run.index is None
                or len(run.earliest) < MAX_KEPT_MATCHES
                or not run.earliest[-1] <= time <= run.last + self._window
            ):
                return False
            folded.append((run, rank))
        self.folded += 1
        for run, rank in folded:
            run.more += 1
            if time > run.last:
                run.last = time
            if rank:
                run.ranks.add(rank)
            if waiting:
                run.waiting = merged(run.waiting, waiting)
        return True

    def add(self, match: Match, fault: Fault) -> None:
        """Take a whole match."""
        key, time = (match.signature, fault), match.time
        run = self._runs.get(key)
        if run is None or time > run.last + self._window:
            if run:
                self._end(run)
            self._runs[key] = Run(len(self._matches), time, time, [time], self._window < 0 or self._is_mixed(key[0]))
        elif time >= run.first - self._window:
            run.first, run.last = min(run.first, time), max(run.last, time)
            bisect.insort(run.earliest, time)
            del run.earliest[MAX_KEPT_MATCHES:]
            if run.index is None:
                run.index = len(self._matches)
        self._matches.append(match)

    def end(self) -> dict[RunKey, Run]:
        """Let the matches that stand for others say so. Returns the runs that the log's next chunk may go on with."""
        runs, self._runs = self._runs, {}
        for run in runs.values():
            self._end(run)
        return {
            key: replace(run, index=None, more=0, ranks=set(), waiting=())
            for key, run in runs.items()
            if run.index is not None
        }

    def _end(self, run: Run) -> None:
        if run.more and run.index is not None:
            match = self._matches[run.index]
            waiting = merged(match.waiting, run.waiting)
            self._matches[run.index] = replace(
                match, lines=1 + run.more, until=run.last, ranks=frozenset(run.ranks), waiting=waiting
            )
