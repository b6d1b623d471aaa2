"""Which logs of a source this node counts: all of them, or those that it has leases on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from exporter.sources.calls import IN_PLACE, ask
from exporter.sources.files.leases import Leases
from exporter.sources.files.register import Register
from exporter.sources.files.tail import Log

T = TypeVar("T")
Result = TypeVar("Result")


class SharedLogs:
    """The leases of a source and its register, kept in agreement. Without leases, every log is counted."""

    def __init__(self, register: Register, leases: Leases | None) -> None:
        self._register = register
        self._leases = leases

    @property
    def is_shared(self) -> bool:
        return self._leases is not None

    @property
    def may_read(self) -> bool:
        return self._leases is None or self._leases.holds

    @property
    def problem(self) -> str:
        return self._leases.problem if self._leases else ""

    def begin(self) -> None:
        """Renew the leases, and drop logs that another node has claimed."""
        if self._leases is None:
            return
        ours = {log.base: log for log in self._register.table.followed()}
        for path in self._ask(self._leases, self._leases.tick, ours):
            if path in ours:
                self._register.drop(ours.pop(path))
        for path in ours:
            self._leases.begin_of(path)  # it goes on where our own state says

    def counts(self, path: str) -> bool:
        """Whether this node counts a log that was found."""
        return self._leases is None or self._ask(self._leases, self._leases.wants, path)

    def begin_of(self, path: str) -> int | None:
        """The offset of the node that counted a log before; None to begin as usual."""
        return self._leases.begin_of(path) if self._leases else None

    def saved(self) -> None:
        """Publish the positions, which have been committed."""
        if self._leases is not None:
            offsets = {path: log.position.offset for path, log in self._register.by_path.items()}
            self._ask(self._leases, self._leases.publish, offsets)

    def finished(self, log: Log) -> None:
        """Release a finished log."""
        if self._leases is not None:
            self._ask(self._leases, self._leases.forget, log.base)

    @staticmethod
    def _ask(leases: Leases, function: Callable[[T], Result], about: T) -> Result:
        return ask(leases.folder, function, about, lane=IN_PLACE)
