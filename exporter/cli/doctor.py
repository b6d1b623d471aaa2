"""`gpufault doctor`: what this installation can and cannot see here, and why."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from exporter.cli import options as flags

if TYPE_CHECKING:
    from exporter.config import Config

HELP = "what this installation can and cannot see here, and why"
DESCRIPTION = "Checks each thing that the daemon needs. Exit code 1 if something does not work."
WATCHES_WANTED = 8192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_config(parser)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `note` works, but is worth knowing."""

    state: Literal["ok", "note", "bad"]
    what: str
    told: str


def run(options: argparse.Namespace) -> int:
    from exporter.core.redact import redact

    config = flags.load_config(options)
    findings = [finding for check in CHECKS.values() for finding in _safely(check, config)]
    width = max(len(f.what) for f in findings)
    for finding in findings:
        print(redact(f"{finding.state:<4}  {finding.what:<{width}}  {finding.told}"))  # it gets pasted into issues
    bad = sum(f.state == "bad" for f in findings)
    print(f"\n{bad} of {len(findings)} checks failed" if bad else f"\nall {len(findings)} checks passed")
    return 1 if bad else 0


def _safely(check: Callable[[Config], Iterator[Finding]], config: Config) -> Iterator[Finding]:
    try:
        yield from check(config)
    except Exception as error:
        yield Finding("bad", check.__name__.strip("_"), f"the check itself failed: {error!r}")


def _python(_config: Config) -> Iterator[Finding]:
    from exporter import __version__

    yield Finding("ok", "version", f"gpufault {__version__}, Python {sys.version.split()[0]}, uid {os.geteuid()}")


def _signatures(config: Config) -> Iterator[Finding]:
    from exporter import packs
    from exporter.core.pipeline import Pipeline
    from exporter.core.problems import InvalidInput

    started = time.perf_counter()
    try:
        catalogue = packs.load(config.signatures.dirs, disable=config.signatures.disable)
    except InvalidInput as error:
        for problem in error.problems:
            yield Finding("bad", "signatures", str(problem))
        return
    pipeline = Pipeline(catalogue, engine=config.signatures.engine)
    took = time.perf_counter() - started
    yield Finding(
        "ok", "signatures", f"{len(catalogue.signatures)} signatures, {len(catalogue.root_causes)} causes, {took:.1f} s"
    )
    fast = pipeline.engine.name == "hyperscan"
    yield Finding(
        "ok" if fast else "note",
        "match engine",
        f"{pipeline.engine.name} {pipeline.engine.version}" + ("" if fast else ": slower; pip install hyperscan"),
    )


def _state(config: Config) -> Iterator[Finding]:
    folder = config.state_dir
    at = next(p for p in (folder, *folder.parents) if p.exists())
    if os.access(at, os.W_OK | os.X_OK):
        free = os.statvfs(at).f_bavail * os.statvfs(at).f_frsize >> 20
        yield Finding("ok" if free > 512 else "bad", "state folder", f"{folder}, {free} MiB free")
        for path in (config.state_dir, config.journal_dir):
            if path.is_dir() and path.stat().st_mode & 0o077:
                yield Finding(
                    "note", "state folder", f"{path} is open to other users; the files in it are not; chmod 700"
                )
    else:
        yield Finding(
            "bad", "state folder", f"{at} cannot be written by uid {os.geteuid()}; chown it, or give --state.dir"
        )


def _sources(config: Config) -> Iterator[Finding]:
    from exporter import inputs

    said: list[str] = []
    for source in inputs.build(config, {}, first_start=True, say=said.append, wake=lambda: None):
        try:
            next(iter(source.poll(time.time())), None)
            stats = source.stats
            if stats.up:
                files = f", {stats.files} files" if source.name.startswith("files") else ""
                yield Finding("ok", f"source {source.name}", f"can be read{files}")
            else:
                yield Finding("bad", f"source {source.name}", stats.why_down or "not up yet")
            for reason, count in sorted(stats.dropped.items()):
                yield Finding("note", f"source {source.name}", f"{count} passed over: {reason}")
        finally:
            source.close()
    for line in said:
        yield Finding("note", "sources", line)


def _watching(config: Config) -> Iterator[Finding]:
    if not any(source.kind == "files" for source in config.sources):
        return
    limit = _number("/proc/sys/fs/inotify/max_user_watches")
    if limit is not None and limit < WATCHES_WANTED:
        yield Finding(
            "note",
            "inotify",
            f"max_user_watches is {limit}: folders beyond it are polled; sysctl it to {WATCHES_WANTED}",
        )
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft > config.limits.open_files + 64
    yield Finding(
        "ok" if enough else "note",
        "open files",
        f"limit {soft}"
        + ("" if enough else f" is near limits.open_files {config.limits.open_files}; fewer logs stay open"),
    )


def _facts(_config: Config) -> Iterator[Finding]:
    from exporter.gpu_processes import may_look
    from exporter.probes import gather

    started = time.perf_counter()
    gathered = gather(_config.facts.rootfs, home=_config.facts.home, environ=os.environ)
    took = (time.perf_counter() - started) * 1000
    yield Finding("ok", "facts", f"{len(gathered.facts)} facts in {took:.0f} ms; `gpufault facts` shows them")
    if not gathered.gpus:
        yield Finding("note", "GPUs", "none found here: signatures of all vendors stay in force")
    elif _config.facts.processes and not may_look():
        told = "of other users cannot be looked into, so jobs' own libraries stay unknown; CAP_SYS_PTRACE allows it"
        yield Finding("note", "GPU processes", told)
    for probe, why in sorted(gathered.failed.items()):
        yield Finding("note", f"probe {probe}", why)


def _outputs(config: Config) -> Iterator[Finding]:
    from exporter.outputs.reaching import look

    for seen in look(config.outputs, flags.node_name(config.node)):
        yield Finding(seen.state, f"output {seen.name}", seen.told)


def _clock(_config: Config) -> Iterator[Finding]:
    if time.time() < 1_700_000_000:
        yield Finding(
            "bad", "clock", "the node's clock is before 2023; incidents cannot be joined with those of other nodes"
        )
    else:
        yield Finding("ok", "clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


CHECKS = {
    "version": _python,
    "signatures": _signatures,
    "state": _state,
    "sources": _sources,
    "watching": _watching,
    "facts": _facts,
    "outputs": _outputs,
    "clock": _clock,
}


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
