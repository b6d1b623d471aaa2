"""`gpufault doctor`: checks what this installation can read here, and why not."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from exporter.cli import options as flags
from exporter.core.text.phrases import counted
from exporter.outputs.reachability import CheckResult

if TYPE_CHECKING:
    from exporter.config.node import Config

DESCRIPTION = "Checks each thing that the daemon needs. Exit code 1 if something does not work."
WATCHES_WANTED = 8192
STATE_MIB = 512  # a state of 50,000 logs is 100 MB, and its journal may have to wait in it
USER_VERSION = 60  # where a database has it: https://www.sqlite.org/fileformat.html, 1.3
TIMEX_BYTES = 512  # struct timex has 208
TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized


T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_config(parser)
    flags.add(parser, "--web.config.file", metavar="FILE", help="the daemon's, to be checked too")


def run(options: argparse.Namespace) -> int:
    from exporter.core.text.phrases import printable
    from exporter.core.text.redact import hide_secrets

    config = flags.load_config(options)
    results = [result for check in CHECKS.values() for result in _safely(check, config)]
    results += _safely(_web, options.web_config_file)
    width = max(len(f.name) for f in results)
    for result in results:
        line = f"{result.state:<4}  {result.name:<{width}}  {result.message}"
        print(printable(hide_secrets(line)))
    bad = sum(f.state == "bad" for f in results)
    print(f"\n{bad} of {len(results)} checks failed" if bad else f"\nall {len(results)} checks passed")
    return 1 if bad else 0


def _safely(check: Callable[[T], Iterator[CheckResult]], subject: T) -> Iterator[CheckResult]:
    try:
        yield from check(subject)
    except Exception as error:
        yield CheckResult("bad", check.__name__.strip("_"), f"the check itself failed: {error!r}")


def _python(_config: Config) -> Iterator[CheckResult]:
    from exporter import __version__

    yield CheckResult("ok", "version", f"gpufault {__version__}, Python {sys.version.split()[0]}, uid {os.geteuid()}")


def _signatures(config: Config) -> Iterator[CheckResult]:
    from exporter.config import packs
    from exporter.core.matching.pipeline import Pipeline
    from exporter.core.text.problems import InvalidInput, key_path

    started = time.perf_counter()
    try:
        catalogue = packs.load(config.signatures.dirs)
    except InvalidInput as error:
        for problem in error.problems:
            yield CheckResult("bad", "signatures", str(problem))
        return
    for loc, message in packs.unknown(catalogue, config.signatures.disable):
        yield CheckResult("bad", "signatures", f"{key_path(loc)}: {message}")
    catalogue = catalogue.without(config.signatures.disable)
    pipeline = Pipeline(catalogue, engine=config.signatures.engine)
    took = time.perf_counter() - started
    held = f"{counted(len(catalogue.signatures), 'signature')}, {counted(len(catalogue.root_causes), 'cause')}"
    yield CheckResult("ok", "signatures", f"{held}, {took:.1f} s")
    fast = pipeline.engine.name == "hyperscan"
    yield CheckResult(
        "ok" if fast else "note",
        "match engine",
        f"{pipeline.engine.name} {pipeline.engine.version}" + ("" if fast else ": slower; pip install hyperscan"),
    )


def _state(config: Config) -> Iterator[CheckResult]:
    from exporter.config.plain import journal_folder

    for name, folder, needed in (
        ("state folder", config.state_dir, STATE_MIB),
        ("journal", journal_folder(config), config.journal.max_bytes >> 20),
    ):
        at = next(p for p in (folder, *folder.parents) if p.exists())
        if not os.access(at, os.W_OK | os.X_OK):
            advice = "chown it, or set state_dir" if name == "state folder" else "chown it, or set journal.dir"
            yield CheckResult("bad", name, f"{at} cannot be written by uid {os.geteuid()}; {advice}")
            continue
        files = list(_files_of(folder))
        there = sum(status.st_size for _, status in files)
        free = os.statvfs(at).f_bavail * os.statvfs(at).f_frsize >> 20
        enough = free + (there >> 20) >= needed
        yield CheckResult(
            "ok" if enough else "bad",
            name,
            f"{folder}, {free} MiB free" + ("" if enough else f"; it may need {needed}"),
        )
        if folder.is_dir() and folder.stat().st_mode & 0o077:
            yield CheckResult("note", name, f"{folder} is open to other users; chmod 700")
        for path, status in files:
            if status.st_mode & 0o077:
                yield CheckResult("bad", name, f"{path} is open to other users: it holds lines of logs; chmod 600")
    yield from _schema(config.state_dir / "state.sqlite")


def _files_of(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files in a folder; a running daemon may remove one at any time."""
    for path in sorted(folder.glob("*")):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISREG((status := path.stat()).st_mode):
                yield path, status


def _schema(path: Path) -> Iterator[CheckResult]:
    """Whether this version can use the existing state. Reads only the header: the daemon may be writing."""
    from exporter.store.state import MIGRATIONS, SCHEMA_VERSION

    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        yield CheckResult("ok", "state", "none yet: this would be the first start")
        return
    except PermissionError:
        yield CheckResult(
            "bad", "state", f"{path} cannot be read by uid {os.geteuid()}; run as the daemon's user or root"
        )
        return
    version = int.from_bytes(header[USER_VERSION : USER_VERSION + 4], "big")
    if not header.startswith(b"SQLite format 3\0"):
        yield CheckResult("note", "state", f"{path} is damaged; it will be set aside, and counting starts afresh")
    elif version == SCHEMA_VERSION or version in MIGRATIONS:
        yield CheckResult("ok", "state", f"schema {version}; this gpufault writes {SCHEMA_VERSION}")
    else:
        yield CheckResult(
            "bad", "state", f"{path} has schema {version}, this gpufault supports {SCHEMA_VERSION}; upgrade"
        )


def _sources(config: Config) -> Iterator[CheckResult]:
    from exporter.daemon import source_factory
    from exporter.sources.files.source import RESCAN_SECONDS, FilesSource

    messages: list[str] = []
    reasons: set[str] = set()
    for source in source_factory.build(
        config, {}, node=None, first_start=True, warn=messages.append, wake=lambda: None
    ):
        try:
            next(iter(source.poll(time.time())), None)
            stats = source.stats
            if stats.up:
                files = f", {stats.files} files" if isinstance(source, FilesSource) else ""
                if isinstance(source, FilesSource) and source.watch_mode != "inotify":
                    files += f", watch mode {source.watch_mode}: a new one is found within {RESCAN_SECONDS:g} s"
                yield CheckResult("ok", f"source {source.name}", f"can be read{files}")
                if stats.down_reason:
                    yield CheckResult("note", f"source {source.name}", stats.down_reason)
            else:
                reasons.add(stats.down_reason)
                yield CheckResult("bad", f"source {source.name}", stats.down_reason or "not up yet")
            for reason, count in sorted(stats.dropped.items()):
                yield CheckResult("note", f"source {source.name}", f"{count} skipped: {reason}")
        finally:
            source.close()
    for message in messages:
        if message not in reasons:
            yield CheckResult("note", "sources", message)


def _watching(config: Config) -> Iterator[CheckResult]:
    if not any(source.kind == "files" for source in config.sources):
        return
    limit = _number("/proc/sys/fs/inotify/max_user_watches")
    if limit is not None and limit < WATCHES_WANTED:
        yield CheckResult(
            "note",
            "inotify",
            f"max_user_watches is {limit}: folders beyond it are polled; sysctl it to {WATCHES_WANTED}",
        )
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft > config.limits.open_files + 64
    yield CheckResult(
        "ok" if enough else "note",
        "open files",
        f"limit {soft}"
        + ("" if enough else f" is near limits.open_files {config.limits.open_files}; fewer logs stay open"),
    )


def _facts(config: Config) -> Iterator[CheckResult]:
    from exporter.core.model import ACTION_WORDS
    from exporter.node.driver_probe import DriverProbe
    from exporter.node.gpu_processes import may_inspect
    from exporter.probes import gather
    from exporter.probes.ask_driver import ASKED
    from exporter.process.extras import how_to_install
    from exporter.sources.boot import moment

    started = time.perf_counter()
    gathered = gather(config.facts.rootfs, home=config.facts.home, environ=os.environ)
    took = (time.perf_counter() - started) * 1000
    yield CheckResult(
        "ok", "facts", f"{counted(len(gathered.facts), 'fact')} in {took:.0f} ms; `gpufault facts` shows them"
    )
    if not gathered.gpus:
        yield CheckResult("note", "GPUs", "none found; signatures of all vendors stay enabled")
    elif config.facts.processes and not may_inspect():
        message = "of other users cannot be looked into, so jobs' own libraries stay unknown; CAP_SYS_PTRACE allows it"
        yield CheckResult("note", "GPU processes", message)
    for probe, why in sorted(gathered.failed.items()):
        yield CheckResult("note", f"probe {probe}", why)
    vendors = {gpu.vendor or "" for gpu in gathered.gpus} & ASKED.keys()
    if vendors and config.facts.ask_driver:
        answer = DriverProbe().ask(vendors, moment(time.time()))
        for vendor in sorted(vendors.intersection(answer.absent)):
            yield CheckResult(
                "note",
                f"driver {vendor}",
                f"is not asked: its library is not installed; {how_to_install(vendor)}",
            )
        for probe, why in sorted(answer.failed.items()):
            yield CheckResult("note", probe, f"does not answer: {why}")
        for gpu in answer.gpus:
            action = answer.actions.get(gpu.pci)
            says = f"asks for this: {ACTION_WORDS[action]}" if action else "does not say what it wants done"
            yield CheckResult("ok", "driver", f"{gpu.pci}: {says}")


def _jobs(config: Config) -> Iterator[CheckResult]:
    from exporter.node.job_folder import JobFolder
    from exporter.node.pod_devices import PodDevices
    from exporter.node.process_jobs import ProcessJobs

    if ProcessJobs(config.facts.rootfs / "proc", time.monotonic).usable():
        yield CheckResult("ok", "jobs by process", "kernel lines that name a process name its job")
    else:
        why = f"{config.facts.rootfs / 'proc'} does not show the node's processes; in a container, mount the node's /proc there"
        yield CheckResult("note", "jobs by process", why)
    folder = JobFolder(config.jobs.dir)
    folder.refresh(time.time())
    if folder.failed:
        yield CheckResult("bad", "jobs by GPU", folder.failed)
    elif folder.exists:
        yield CheckResult("ok", "jobs by GPU", f"{config.jobs.dir} has {counted(len(folder.jobs), 'job')}")
    elif config.jobs.pod_resources is None:
        yield CheckResult(
            "note", "jobs by GPU", "unknown: set up the scheduler's hooks or the kubelet (docs/attribution.md)"
        )
    if config.jobs.pod_resources is not None:
        devices = PodDevices(config.jobs.pod_resources)
        devices.refresh(time.time(), wait=True)
        yield CheckResult(
            "ok" if devices.up else "bad", "jobs by GPU", devices.failed or "the kubelet tells which pod has which"
        )


def _outputs(config: Config) -> Iterator[CheckResult]:
    from exporter.outputs.reachability import check_outputs

    for result in check_outputs(config.outputs, flags.node_name(config.node)):
        yield result._replace(name=f"output {result.name}")


def _clock(_config: Config) -> Iterator[CheckResult]:
    if time.time() < 1_700_000_000:
        yield CheckResult(
            "bad", "clock", "the node's clock is before 2023; incidents cannot be joined with those of other nodes"
        )
        return
    yield CheckResult("ok", "clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    if ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)) == TIME_ERROR:
        message = "not synchronised: crashes of several nodes may appear in the wrong order"
        yield CheckResult("note", "clock", f"{message}; run chrony or systemd-timesyncd")


def _web(file: str | None) -> Iterator[CheckResult]:
    """Whether the daemon would accept its web configuration, and what it requires of clients."""
    from exporter.core.text.problems import InvalidInput
    from exporter.web.active_config import ActiveConfig

    if file is None:
        yield CheckResult("note", "web", "no --web.config.file: anyone who reaches the port can read it")
        return
    try:
        web = ActiveConfig(Path(file).absolute())
    except InvalidInput as error:
        for problem in error.problems:
            yield CheckResult("bad", "web", str(problem))
        return
    yield CheckResult("ok", "web", f"{file}: {web.settings.summary}")
    if Path(file).stat().st_mode & 0o004:
        yield CheckResult("note", "web", f"{file} is open to all users: it holds password hashes; chmod 640")


CHECKS = {
    "version": _python,
    "signatures": _signatures,
    "state": _state,
    "sources": _sources,
    "watching": _watching,
    "facts": _facts,
    "jobs": _jobs,
    "outputs": _outputs,
    "clock": _clock,
}


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
