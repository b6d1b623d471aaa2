"""`gpufault scan`: the daemon's analysis over files, once, with a progress bar on a terminal."""

from __future__ import annotations

import argparse
import atexit
import gc
import heapq
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from exporter.cli import options as flags
from exporter.core.text.phrases import counted, printable, spreadsheet_cell
from exporter.core.text.redact import hide_secrets
from exporter.scan.decompress import is_archive

if TYPE_CHECKING:
    from exporter.core.catalogue.loader import Catalogue
    from exporter.node.this_node import ThisNode
    from exporter.scan.engines.scan_engine import ScanEngine
    from exporter.scan.plan import Unread
    from exporter.scan.run import Summary


GARBAGE = 100_000  # objects before the first collection: those of a catalogue stay, and to go through them takes 10 ms
DESCRIPTION = (
    "Analyse existing logs as the daemon would. Exit code 1: an incident was found; 0: none was found; "
    "3: none was found, and something could not be read."
)
CSV_FIELDS = (
    "time", "node", "signature", "root_cause", "verdict", "domain", "severity", "role", "gpu", "job", "path",
    "line", "lines", "text",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file, folder, glob or -")
    parser.add_argument("--format", default="text", choices=("text", "json", "csv"), help="json is one record a line")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--summary", action="store_true", help="of the text, only the table of root causes and signatures"
    )
    shown.add_argument(
        "--quiet", action="store_true", help="print nothing; the exit code says whether there was an incident"
    )
    parser.add_argument(
        "--source", default="auto", choices=("job", "kernel", "auto"), help="what the logs are; default: auto"
    )
    parser.add_argument(
        "--facts",
        default="none",
        metavar="FILE|host|none",
        help="facts of the node that the logs are from; host: this one, whose kernel log explains crashes in the logs too",
    )
    parser.add_argument(
        "--engine",
        default="local",
        choices=("local", "dask"),
        help="where to read: in processes here, or in a Dask cluster; docs/scanning.md; default: local",
    )
    parser.add_argument(
        "--workers",
        type=_number,
        metavar="N",
        help="processes of the local engine; 0: one a core; default: 1",
    )
    parser.add_argument(
        "--task.size",
        dest="task_size",
        type=_size,
        metavar="SIZE",
        help="dask: bytes of logs for a task, such as 1GiB; default: what is measured to take 10 seconds",
    )
    flags.add(
        parser,
        "--dask.address",
        type=_address,
        metavar="URL",
        help="the scheduler of a running cluster: tcp://HOST:PORT",
    )
    parser.add_argument("--output", metavar="FILE", help="write the result here instead of stdout")
    parser.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=None, help="default: on a terminal"
    )
    flags.add_catalogue(parser)


def run(options: argparse.Namespace) -> int:
    gc.set_threshold(GARBAGE)
    atexit.register(gc.freeze)  # Python collects garbage as it exits, which takes 15 ms for memory that is freed anyway
    from exporter.cli.incident_text import unread_text
    from exporter.config import packs
    from exporter.scan.plan import Unread, Wanted, expand
    from exporter.scan.run import scan

    if options.engine == "dask" and not options.dask_address:
        raise flags.UsageError("--engine dask needs --dask.address tcp://HOST:PORT of its scheduler")
    catalogue = packs.load(flags.pack_folders(options))
    here, facts = facts_named(options.facts, catalogue)
    node = flags.node_name()
    logs: Iterator[Wanted | Unread] = (
        path if isinstance(path, Unread) else Wanted(path, options.source) for path in expand(options.paths)
    )
    workers = _workers(options)
    with Progress(options.paths, options.progress) as progress:
        summary = scan(
            logs,
            catalogue,
            node=node,
            facts=facts,
            workers=workers,
            progress=progress,
            report_unread=progress.report_unread,
            kernel_log=here.kernel_log if here else None,
        )
    if summary.unread and options.format != "text":
        print(f"gpufault scan: {unread_text(summary)}, see above", file=sys.stderr)
    if summary.kernel_unread:
        print(f"gpufault scan: the kernel log of this node cannot be read: {summary.kernel_unread}", file=sys.stderr)
    if summary.broken:
        print(f"gpufault scan: {summary.broken}", file=sys.stderr)
    if summary.broken and not summary.bytes:
        return 3
    if summary.stopped_at is not None:
        stopped_at = printable(summary.stopped_at or "no log yet")
        print(f"stopped in {stopped_at}: what was found so far follows", file=sys.stderr)
    if options.output:
        with open(options.output, "w", encoding="utf-8", newline="") as file:
            _write(file, options, summary, catalogue, node)
    elif not options.quiet:
        _write(sys.stdout, options, summary, catalogue, node)
    if summary.broken:
        return 3
    if summary.stopped_at is not None:
        return 128 + signal.SIGINT
    return 1 if summary.diagnoses else 3 if summary.unread else 0


def _workers(options: argparse.Namespace) -> ScanEngine | int:
    """The engine that reads the logs. Raises Unusable."""
    if options.engine == "dask":
        from exporter.scan.engines.dask import Dask

        return Dask(options.dask_address, task_bytes=options.task_size)
    return 1 if options.workers is None else options.workers or os.cpu_count() or 1


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _size(text: str) -> int:
    from exporter.config.types import size

    try:
        return size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _address(text: str) -> str:
    if not re.fullmatch(r"(?:[a-z]+://)?(?:\[[^\]]+\]|[^/:\s]+):\d{1,5}/?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the address of a scheduler; write for example tcp://HOST:8786"
        )
    return text


def facts_named(which: str, catalogue: Catalogue) -> tuple[ThisNode | None, Mapping[str, str]]:
    """This node, if it is asked for, and the facts that --facts asks for."""
    if which == "none":
        return None, {}
    if which == "host":
        from exporter.node.this_node import ThisNode

        here = ThisNode()
        return here, here.facts
    return None, read_facts(which, _fact_names(catalogue))


def _fact_names(catalogue: Catalogue) -> frozenset[str]:
    """The names of facts that this version reads or asks for."""
    from exporter.core.catalogue.pack_types import leaf_conditions
    from exporter.core.facts import process
    from exporter.probes import FACTS

    leaves = (leaf for cause in catalogue.root_causes.values() for _, leaf in leaf_conditions(cause))
    return frozenset({*FACTS, *process.FACTS, *(leaf.fact for leaf in leaves if leaf.fact)})


def read_facts(path: str, names: Collection[str] = ()) -> Mapping[str, str]:
    """Facts from a JSON or YAML mapping.

    Raises InvalidInput with the place of each value that is not text, and of each name that is probably a misspelt known
    one. Other names are custom facts.
    """
    from difflib import get_close_matches

    from exporter.core.text.problems import InvalidInput
    from exporter.core.text.validation_messages import shown
    from exporter.core.text.yaml_text import parse
    from exporter.store.safe_open import read_text

    document = parse(read_text(path, pipes=True), path)
    data = {} if document.data is None else document.data
    if isinstance(data, dict) and data.get("kind") == "facts" and isinstance(data.get("facts"), dict):
        data = data["facts"]  # a record of the journal
    if not isinstance(data, dict):
        raise InvalidInput(
            [document.problem((), "must map fact names to texts; `gpufault facts --format json` prints one")]
        )
    problems = [
        document.problem((name,), f"must be text, not {shown(value)}")
        for name, value in data.items()
        if isinstance(value, dict | list)
    ]
    for name in data:
        if names and isinstance(name, str) and name not in names and not name.startswith("env."):
            meant = [near for near in get_close_matches(name, names, 1, cutoff=0.85) if near not in data]
            problems += [document.problem((name,), f"unknown fact; did you mean {near}?") for near in meant]
    if problems:
        raise InvalidInput(sorted(problems, key=lambda problem: (problem.line, problem.col)))
    return {name: _text_of(value) for name, value in data.items() if value is not None}


def _text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write(out: IO[str], options: argparse.Namespace, summary: Summary, catalogue: Catalogue, node: str) -> None:
    from exporter.cli.incident_text import has_color, scan_text

    records = _records(summary, catalogue, node, own_paths=options.format == "text")
    if options.format == "json":
        is_utf8 = (getattr(out, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
        for record in records:
            line = json.dumps(record, ensure_ascii=not is_utf8)
            out.write((line if line.isprintable() else json.dumps(record)) + "\n")  # it may go to a terminal too
    elif options.format == "csv":
        import csv

        writer = csv.DictWriter(out, CSV_FIELDS)
        writer.writeheader()
        for record in records:
            row = {**record, "job": (record["job"] or {}).get("id", "")}
            writer.writerow({name: spreadsheet_cell(row[name]) for name in CSV_FIELDS})
    else:
        given, only_table = options.facts, options.summary
        packs, color = options.signatures_dir or (), has_color(out)
        text = scan_text([*records], summary, catalogue, facts=given, packs=packs, only_table=only_table, color=color)
        out.write(text)


def _records(summary: Summary, catalogue: Catalogue, node: str, *, own_paths: bool) -> Iterator[dict[str, Any]]:
    """In reading order, one after the other: there may be many. own_paths: not redacted, for the one who gave them."""
    if not (summary.diagnoses or summary.notes):
        return  # without the imports
    from exporter.core.diagnosis.records import incident_record, writable
    from exporter.core.text.redact import hide_secrets
    from exporter.scan.run import reading_order

    for diagnosis in heapq.merge(summary.diagnoses, summary.notes, key=reading_order):
        record = incident_record(diagnosis, catalogue, node)
        yield {**record, "path": writable(hide_secrets(diagnosis.incident.first.path))} if own_paths else record


PACKED = 8  # bytes of a log that one of its archive stands for until its end, when all of it counts: 5 to 15 are usual

WIDE = 80  # columns that all of the bar takes; with fewer, rich would cut words and break lines


class Progress:
    """Counts the bytes read, as on disk. The total is unknown if something comes from a pipe."""

    def __init__(self, paths: Sequence[str], wanted: bool | None) -> None:
        self._bar: Any = None
        self._paths = paths
        self._files = 0
        self._archive, self._left = "", 0  # which is being read, and what is left of it on disk
        if wanted if wanted is not None else sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            console = Console(stderr=True)
            of_bytes = (DownloadColumn(), TransferSpeedColumn()) if console.width >= WIDE else ()
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                *of_bytes,
                TextColumn("{task.fields[files]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )

    def __enter__(self) -> Progress:
        if self._bar:
            self._total_files, size = _extent(self._paths)
            self._task = self._bar.add_task("scanning", total=size or None, files=self._files_text())
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, path: str, size: int) -> None:
        """Record that more decompressed bytes of a log were read; 0: the log is done."""
        self._files += size == 0
        if self._bar:
            advance = self._packed_bytes(path, size) if is_archive(path) else size
            self._bar.update(self._task, advance=advance, files=self._files_text())

    def _files_text(self) -> str:
        return f"{self._files:,} of {counted(self._total_files, 'file')}"

    def _packed_bytes(self, path: str, size: int) -> int:
        """Estimate how many compressed bytes correspond to a number of decompressed bytes."""
        if path != self._archive:
            self._archive, self._left = path, _size_on_disk(path) or 0
        advance = min(size // PACKED, self._left) if size else self._left
        self._left -= advance
        return advance

    def report_unread(self, unread: Unread) -> None:
        """Print a file that could not be read, above the bar."""
        line = printable(hide_secrets(f"{unread.path}: not read: {unread.why}"))
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr)


def _extent(paths: Sequence[str]) -> tuple[int, int]:
    """Files, and bytes on disk: 0 if unknown."""
    from exporter.scan.plan import expand

    sizes = [_size_on_disk(path) for path in expand(paths) if isinstance(path, str)]
    return len(sizes), 0 if None in sizes else sum(size or 0 for size in sizes)


def _size_on_disk(path: str) -> int | None:
    """The size of a file; None for a pipe or a missing file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
