"""A span of time, which reviews, findings and timelines are about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of time: from `start` up to, and without, `end`."""

    start: float
    end: float

    @property
    def hours(self) -> float:
        return (self.end - self.start) / 3600
