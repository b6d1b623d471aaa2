"""`gpufault inject`: sends a tagged test line through a real source, to test the path from a log to a counter."""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from exporter.cli import daemon_client
from exporter.cli import options as flags

if TYPE_CHECKING:
    from exporter.config.node import Config
    from exporter.core.model import SourceKind

DESCRIPTION = (
    "Writes a test line where the running daemon must see it and waits until /metrics counts it. With --signature it is an "
    "example of that signature, and is counted only if the daemon recognises it. "
    'It is never an incident: only gpufault_lines_matched_total{signature="gpufault_test_line"} grows. Exit code 1 if '
    "it was not counted, 3 if it could not be written or the daemon does not answer."
)
POLL_SECONDS = 0.05
NAME = "gpufault-inject-test"
_WILD = re.compile(r"\[[^]]*\]|[*?]+")  # in a glob
_DESCRIPTOR = re.compile(r"/proc/(?:self|[0-9]+)/fd/[0-9]+")  # links of the kernel's own; a pod's output is one
MAX_ANSWER = 16 << 20  # bytes; 1,830 series are 0.3 MB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_config(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--file", metavar="FILE", help="append the line here; default: a new file below the first `files` source"
    )
    where.add_argument("--kmsg", action="store_true", help="write it to the kernel log (needs root)")
    parser.add_argument(
        "--signature",
        metavar="ID",
        help="write the first example of this signature, as a test of whether it is recognised",
    )
    parser.add_argument(
        "--url", type=_metrics, default="http://127.0.0.1:9873", help="the daemon, or its metrics; default: %(default)s"
    )
    daemon_client.add_arguments(parser)
    parser.add_argument("--timeout", type=float, default=15.0, metavar="SECONDS", help="default: %(default)s")


def _metrics(url: str) -> str:
    """The address of the metrics: below that of a daemon, unless it has a path already."""
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/metrics"


def run(options: argparse.Namespace) -> int:
    config = flags.load_config(options)
    lines = _test_lines(options, config)
    source = "kernel" if options.kmsg else "job"
    before = _count(options, source)
    with _target(options, config) as (path, descriptor):
        started = time.monotonic()
        with open(descriptor, "ab", buffering=0) as target:
            target.writelines(line.encode() for line in lines)  # unbuffered: /dev/kmsg takes one record a write
        while time.monotonic() - started < options.timeout:
            if _count(options, source) > before:
                print(f"seen: {path} to {options.url} in {time.monotonic() - started:.2f} s")
                return 0
            time.sleep(POLL_SECONDS)
    has_it = f", and does the daemon have the signature {options.signature}" if options.signature else ""
    print(
        f"gpufault inject: {path} was written, but {options.url} did not count it within {options.timeout:g} s; "
        f"is the path covered by a source{has_it}? `gpufault doctor` and /-/ready show what the daemon cannot see",
        file=sys.stderr,
    )
    return 1


def _test_lines(options: argparse.Namespace, config: Config) -> list[str]:
    """The test line, or the lines of an example, each tagged as a test."""
    tag = f"gpufault inject: test line {secrets.token_hex(8)}"
    if not options.signature:
        return [f"{tag}\n"]
    from exporter.config import packs
    from exporter.core.decoding.formats import decode
    from exporter.core.decoding.prefixes import Clock

    signature = packs.load_texts(config.signatures.dirs).catalogue.signatures.get(options.signature)
    if signature is None or not signature.examples:
        raise flags.UsageError(
            f"--signature: no signature {options.signature!r} with an example; see `gpufault signatures list`"
        )
    if ("kernel" if options.kmsg else "job") not in signature.sources:
        advice = "leave out --kmsg" if options.kmsg else "give --kmsg (needs root)"
        raise flags.UsageError(
            f"--signature: {signature.id} is looked for in {signature.sources[0]} logs only; {advice}"
        )
    source: SourceKind = "kernel" if options.kmsg else "job"
    lines = signature.examples[0].text.strip("\n").encode().split(b"\n")
    texts = [decode(line, "plain", source, Clock(0.0)).text for line in lines]  # the tag stands where a prefix did
    return [f"{tag} of {signature.id}: {text}\n" for text in texts]


@contextlib.contextmanager
def _target(options: argparse.Namespace, config: Config) -> Iterator[tuple[str, int]]:
    """The open file to write to: the one that the flags name, or a temporary file that a `files` source must find."""
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    if options.kmsg or options.file:
        path = "/dev/kmsg" if options.kmsg else options.file
        # Its folder may be a user's, too, who may have put a link or a FIFO there.
        follow = 0 if _DESCRIPTOR.fullmatch(path) else os.O_NOFOLLOW
        yield path, os.open(path, append | follow | os.O_NONBLOCK, 0o644)
    else:
        own = _own_file(config)
        descriptor = os.open(own, append | os.O_EXCL, 0o644)  # the folder may be a user's, and hold a link of this name
        try:
            yield str(own), descriptor
        finally:
            own.unlink(missing_ok=True)
            if own.parent.name == NAME:
                own.parent.rmdir()


def _own_file(config: Config) -> Path:
    from exporter.daemon.source_factory import settings_of_all

    reasons: list[str] = []
    for settings in settings_of_all(config).values():
        mistakes = settings.globs().mistakes()
        reasons += mistakes.values()
        for pattern in settings.paths:
            folder, name = os.path.split(pattern.replace("**/", ""))
            if pattern in mistakes or os.path.lexists(pattern):  # a log that is there is a job's
                continue
            named = _WILD.sub(f"{NAME}-{secrets.token_hex(4)}", name)
            folders = [path for path in sorted(glob.glob(folder)) if os.path.isdir(path)]
            if folders:
                return Path(folders[0], named)
            own = Path(_WILD.sub(NAME, folder))  # no job has logged yet
            if own.parent.is_dir():
                own.mkdir()
                return own / named
    raise OSError("; ".join([*reasons, "no path of a `files` source has a folder to write to; give --file or --kmsg"]))


def _count(options: argparse.Namespace, source: str) -> float:
    import urllib.error

    url = options.url
    try:
        text = daemon_client.ask(url, options, timeout=5.0, most=MAX_ANSWER).decode()
    except urllib.error.HTTPError as error:
        advice = "; give --user and --password-file" if error.code == 401 else ""
        raise OSError(f"{url}: {error.code} {error.reason}{advice}") from error
    except OSError as error:
        raise OSError(f"{url}: {daemon_client.failure_of(error)}; is the daemon running?") from error
    sample = re.compile(rf'gpufault_lines_matched_total{{signature="gpufault_test_line",source="{source}"}} (\S+)')
    match = sample.search(text)
    return float(match[1]) if match else 0.0
