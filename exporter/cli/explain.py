"""`gpufault explain`: why a line did or did not match, stage by stage, and how its cause was chosen."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from exporter.cli import options as flags

if TYPE_CHECKING:
    from exporter.cli.explanation_text import Reading
    from exporter.core.catalogue.loader import Catalogue
    from exporter.core.diagnosis.assessment import Diagnosis
    from exporter.core.flight_recorder import Dump
    from exporter.core.matching.pipeline import Pipeline
    from exporter.core.model import LogFormat, Match, SourceKind
    from exporter.node.this_node import ThisNode

SHOWN_LINES = 20
LOG_BYTES = 64 << 20  # of a log that is explained: its lines are held in memory
DUMP_BYTES = 64 << 20  # of all dumps beside a log: some 200 ranks with 2,000 operations each, which takes 40 s

DESCRIPTION = (
    "Takes one line, a log, or the incident at a line of a log. Tells of each incident its cause, the evidence, what would "
    "change the answer and what to do; of a single line also how it was read."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "line",
        nargs="?",
        metavar="LINE|FILE[:LINE]",
        help="a line's text, or a log and the line of an incident in it; -: stdin",
    )
    parser.add_argument("--source", default="auto", choices=("job", "kernel", "auto"), help="default: auto")
    parser.add_argument(
        "--facts",
        default="none",
        metavar="FILE|host|none",
        help="facts of the node that the line is from; host: this one, whose kernel log is read with a FILE",
    )
    parser.add_argument(
        "--details", action="store_true", help="also how each line was read and each candidate cause was judged"
    )
    flags.add_catalogue(parser)


def run(options: argparse.Namespace) -> int:
    from exporter.cli.incident_text import has_color
    from exporter.cli.scan import facts_named
    from exporter.config import packs
    from exporter.core.text.redact import redact
    from exporter.scan.reader import head

    path, at = _file_and_line(options.line or "-")
    if options.line in (None, "-"):
        text = sys.stdin.buffer.read().decode("utf-8", "backslashreplace")
    elif path:
        try:
            data = head(path, LOG_BYTES + 1)
        except OSError as error:  # of a damaged archive it does not name the file
            raise OSError(f"{path}: {error.strerror or error}") from error
        if len(data) > LOG_BYTES:
            raise flags.UsageError(
                f"{path} is larger than {LOG_BYTES >> 20} MiB; give the part around the incident on stdin"
            )
        text = data.decode("utf-8", "backslashreplace")
    elif _PATH.fullmatch(options.line):
        raise FileNotFoundError(f"{options.line}: no such file")
    else:
        text = options.line
    if not text.strip():
        raise flags.UsageError("nothing to explain; give a line, a log, or a log on stdin")
    is_line = options.line not in (None, "-") and not path
    catalogue = packs.load(flags.pack_folders(options))
    here, facts = facts_named(options.facts, catalogue)
    report = explain(
        text,
        options.source,
        catalogue,
        None if options.facts == "none" else facts,
        stages=options.details or is_line,
        candidates=options.details,
        at=at,
        log=LocalLog(path, here) if path and here else None,
        path=path,
        color=has_color(sys.stdout),
    )
    print(redact(report))  # it is what gets pasted into issues and chats
    return 0


_PATH = re.compile(r"\S*(?:/\S*|\.(?:log|out|err|txt|gz|bz2|xz|zst|jsonl))(?::\d+)?")  # what no line consists of


def _file_and_line(text: str) -> tuple[str, int | None]:
    """File and line number in `FILE:LINE`; "" if the text is not of that form."""
    if os.path.isfile(text):
        return text, None
    path, _, number = text.rpartition(":")
    return (path, int(number)) if number.isascii() and number.isdecimal() and os.path.isfile(path) else ("", None)


def _dumps_beside(path: str) -> list[Dump]:
    """The dumps of flight recorders in the folder of a log. Reports invalid ones on stderr, and those beyond DUMP_BYTES."""
    from exporter.core.flight_recorder import FILE_NAME, parse_dump
    from exporter.core.text.phrases import printable
    from exporter.store.safe_open import read_start

    folder = os.path.dirname(path) or "."
    dumps, left = [], DUMP_BYTES
    for name in sorted(os.listdir(folder)):
        if match := FILE_NAME.fullmatch(name):
            dump = os.path.join(folder, name)
            try:
                data = read_start(dump, left)
                dumps.append(parse_dump(data, int(match["rank"])))
                left -= len(data)
            except (OSError, ValueError) as error:
                print(printable(f"{dump}: not read: {error}"), file=sys.stderr)
    return dumps


def explain(
    text: str,
    source: Literal["job", "kernel", "auto"],
    catalogue: Catalogue,
    facts: Mapping[str, str] | None,
    *,
    stages: bool = False,
    candidates: bool = False,
    color: bool = False,
    at: int | None = None,
    log: LocalLog | None = None,
    path: str = "",
) -> str:
    """Explain the incidents of a text, or the one `at` a line.

    details: also every candidate cause, and how each line was read. log: the text's, if it is of this node.
    path: of the text's log, beside which the ranks' flight recorders may have left dumps.
    """
    from exporter.cli.explanation_text import every_candidate, explanation, read, stages_of
    from exporter.core.flight_recorder import describe
    from exporter.core.matching.pipeline import Pipeline
    from exporter.core.text.phrases import printable
    from exporter.scan.plan import form_of

    pipeline = Pipeline(catalogue, utc_offset=time.localtime().tm_gmtoff)
    lines = text.removesuffix("\n").split("\n")
    encoded = [line.encode("utf-8", "backslashreplace") for line in lines if line.strip()]
    unread = ""
    kinds = _likely_kinds(encoded) if source == "auto" else (source,)
    for kind in kinds:
        form = form_of(encoded, kind)
        diagnoses, why = _diagnosed(text, kind, form, pipeline, catalogue, facts or {}, log)
        unread = unread or why
        if any(diagnosis.role == "root" for diagnosis in diagnoses):
            break
    else:
        kind, diagnoses = kinds[0], []
        form = form_of(encoded, kind)
    readings = list(read(lines, kind, form, pipeline))
    fact_lines = {} if form == "kmsg" else _lines_of_facts(readings)
    stated = {} if form == "kmsg" else {name: value for one in readings for name, value in one.facts().items()}
    parts = [READ_AS[kind]] if kind != kinds[0] else []
    roots = [diagnosis for diagnosis in diagnoses if diagnosis.role == "root"]
    if at is not None:
        wanted = {d.caused_by or d.id for d in diagnoses if any(_is_at(match, at, log) for match in d.incident.matches)}
        if roots and not any(root.id in wanted for root in roots):
            begin = [d.incident.first.line for d in diagnoses if log is None or d.incident.first.path == log.path]
            line_numbers = ", ".join(map(str, begin[:SHOWN_LINES]))
            at_lines = "line" if len(begin) == 1 else "lines"
            parts.append(f"Line {at} is not in an incident. Incidents begin at {at_lines} {line_numbers}.")
            parts += _alone(lines[at - 1 : at], at, kind, catalogue, facts)
        roots = [root for root in roots if root.id in wanted]
    dumps = _dumps_beside(path) if path and any(diagnosis.incident.waiting for diagnosis in diagnoses) else []
    for root in roots:
        cascades = [diagnosis for diagnosis in diagnoses if diagnosis.caused_by == root.id]
        waiting = (seq for one in (root, *cascades) for group in one.incident.waiting for seq, _ in group.points)
        of_log = log.path if log else None
        recorded = describe(dumps, waiting)
        shown = explanation(
            root,
            cascades,
            catalogue,
            fact_lines,
            color=color,
            log=of_log,
            recorder=recorded,
            facts={**(facts or {}), **stated},
        )
        parts.append("\n".join([*shown, *(every_candidate(root) if candidates else ())]))
    if not parts:
        words = f" Lines with words of a fault: {len(readings):,} of {len(lines):,}" if readings else ""
        hint = "; --details shows why none counts." if words and not stages else "." if words else ""
        parts.append(f"No line shows a fault.{words}{hint}")
    if unread:
        parts.append(f"The kernel log of this node cannot be read: {printable(unread)}")
    elif log and roots and kind == "job" and all(d.incident.first.path == log.path for d in diagnoses):
        parts.append("The kernel log of this node was read too: nothing in it is known to be of this job.")
    if facts is None and any(MISSING_FACT.search(part) for part in parts):
        parts.append(HINT)
    if stages:
        read_as = [f"read as a {kind} log, {form}"]
        stage_lines = (printable(line) for reading in readings for line in stages_of(reading, kind, pipeline))
        parts.append("\n".join([*read_as, *stage_lines]))
    return "\n\n".join(parts)


def _is_at(match: Match, line: int, log: LocalLog | None) -> bool:
    return match.line == line and (log is None or match.path == log.path)


def _alone(
    line: Sequence[str], at: int, log: SourceKind, catalogue: Catalogue, facts: Mapping[str, str] | None
) -> list[str]:
    """What a line would be by itself, if it would be a fault: a kernel's line in a job's log is not one."""
    text = "".join(line)
    if not text.strip():
        return []
    report = explain(text, "auto", catalogue, facts)
    if not report.startswith(("line ", READ_AS["kernel"], READ_AS["job"])):
        return []
    return [NOT_OF_THIS_LOG[log].format(at=at), report]


class LocalLog(NamedTuple):
    """A log of this node: what the kernel says of its job belongs to it."""

    path: str
    node: ThisNode


HINT = """Write what you find into a file, a line each (rocm_version: '6.2.3'), and give
it with --facts FILE. On the node itself, --facts host finds most of it."""

MISSING_FACT = re.compile(r"^  (?:perhaps|or else|unless) ", re.MULTILINE)  # in an explanation

READ_AS = {
    "kernel": "Read as a kernel log. In a job's log this does not count, since any user can write\n"
    "there; --source job reads it so.",
    "job": "Read as a job's log. In the kernel's log this does not count, since the kernel does\n"
    "not print it; --source kernel reads it so.",
}

NOT_OF_THIS_LOG = {
    "job": "The log is read as a job's, in which no line of the kernel counts: any user can\n"
    "write there. If it is the kernel's log, use --source kernel. By itself, line {at}\n"
    "reads as follows, as line 1:",
    "kernel": "The log is read as the kernel's, in which no line of a job counts. If it is a\n"
    "job's log, use --source job. By itself, line {at} reads as follows, as line 1:",
}


def _lines_of_facts(readings: Iterable[Reading]) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for reading in readings:
        for fact in reading.facts():
            lines.setdefault(fact, []).append(reading.number)
    return lines


def _likely_kinds(lines: Sequence[bytes]) -> tuple[SourceKind, SourceKind]:
    """The likely kinds of a text, most likely first: a copied kernel line may lack its timestamp."""
    from exporter.core.decoding.formats import resembles_kernel_line

    return ("kernel", "job") if resembles_kernel_line(lines[0]) else ("job", "kernel")


def _diagnosed(
    text: str,
    source: SourceKind,
    form: LogFormat,
    pipeline: Pipeline,
    catalogue: Catalogue,
    facts: Mapping[str, str],
    log: LocalLog | None,
) -> tuple[list[Diagnosis], str]:
    """The diagnoses that a scan of this text would report, and why the node's kernel log could not be read."""
    from exporter.core.authoring.example_checks import run_text
    from exporter.core.diagnosis.incident_tracker import IncidentTracker
    from exporter.scan.plan import Wanted
    from exporter.scan.work import WINDOW_SECONDS, Item, scan_one

    tracker = IncidentTracker(catalogue, "explain", window=WINDOW_SECONDS, settle=0.0, live=log is not None)
    if log is None or source == "kernel":
        tracker.add(run_text(pipeline, text, source, form).matches)
        return tracker.settle(0.0, lambda _: facts, everything=True), ""
    tracker.join(scan_one(Item(Wanted(log.path, source)), pipeline, time.time()).incidents)
    tracker.give_times()
    kernel = log.node.kernel_log(pipeline, WINDOW_SECONDS)
    tracker.join(kernel.incidents)
    tracker.shares_node = True
    diagnoses = tracker.settle(0.0, lambda _: facts, everything=True)
    own = {d.caused_by or d.id for d in diagnoses if d.incident.first.path == log.path}
    return [d for d in diagnoses if (d.caused_by or d.id) in own], kernel.unread
