"""Saves a stopped scan to a file, and resumes it. The results are those of an uninterrupted scan."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import exporter
from exporter.core.matching.log_state import dump_context, load_context
from exporter.core.model import Incident
from exporter.core.values import dataclass
from exporter.scan.spans import lines_before
from exporter.scan.stitch import Place
from exporter.scan.work import Survived
from exporter.store import private_files

COUNTS = ("files", "bytes", "lines_matched", "unmatched", "unread")  # of a scan


class CannotResume(OSError):
    """A scan cannot be resumed from this file. The message says why."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stopped scan: how far it has read (None: nothing), what it has found, and its time of reading."""

    read: Place | None
    now: float
    counts: Mapping[str, int]
    incidents: tuple[Incident, ...]
    jobs: frozenset[str] = frozenset()  # whose logs were read: two names at most
    survived: frozenset[Survived] = frozenset()

    def write(self, path: Path) -> None:
        """Raises OSError."""
        from exporter.core.diagnosis.open_incidents import Entry  # most scans are never stopped
        from exporter.core.diagnosis.stored_incidents import dump_entry

        read = self.read
        place = read and {
            "path": os.fsencode(read.path).hex(),
            "offset": read.offset,
            "newlines": read.newlines,
            "context": dump_context(read.context),
            "before": _hash_before(read),
        }
        data = {
            "gpufault": exporter.__version__,
            "read": place,
            "now": self.now,
            "counts": dict(self.counts),
            "jobs": sorted(self.jobs),
            "survived": list(self.survived),
            "incidents": [dump_entry(Entry(0, incident, None)) for incident in self.incidents],
        }
        unfinished = path.with_name(path.name + ".part")
        with os.fdopen(private_files.open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            json.dump(data, file)
        unfinished.replace(path)

    @classmethod
    def read_from(cls, path: Path) -> Stopped:
        """Raises CannotResume, or OSError if the file cannot be read."""
        from exporter.core.diagnosis.stored_incidents import load_entry

        text = path.read_text(encoding="ascii", errors="replace")
        try:
            data = json.loads(text)
            version = data["gpufault"]
            incidents = tuple(load_entry(0, stored).incident for stored in data["incidents"])
            stored = data["read"]
            read = stored and Place(
                os.fsdecode(bytes.fromhex(stored["path"])),
                stored["offset"],
                stored["newlines"],
                load_context(stored["context"]),
            )
            counts = {name: int(data["counts"][name]) for name in COUNTS}
            survived = frozenset(Survived(path, run) for path, run in data["survived"])
            stopped = cls(read, data["now"], counts, incidents, frozenset(data["jobs"]), survived)
            before = stored and stored["before"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            advice = "give the one that the stopped scan told of"
            raise CannotResume(f"{path} is not a file of a stopped scan; {advice}") from error
        if version != exporter.__version__:
            raise CannotResume(f"{path} is of gpufault {version}, and this is {exporter.__version__}; scan anew")
        try:
            same = read is None or before == _hash_before(read)
        except OSError:
            same = False
        if read and not same:
            raise CannotResume(f"{read.path} is not what it was when the scan was stopped in it; scan anew")
        return stopped


def _hash_before(read: Place) -> str:
    """A hash of the lines before a place; empty if the log was read to its end. Raises OSError if they are missing."""
    import hashlib

    return "" if read.offset is None else hashlib.sha256(lines_before(read.path, read.offset)[1]).hexdigest()
