"""`gpufault run`: the node daemon."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli import options as flags
from exporter.core.text.phrases import counted

if TYPE_CHECKING:
    from exporter.cli.load_in_subprocess import Loaded
    from exporter.config.node import Config
    from exporter.core.catalogue.loader import Catalogue
    from exporter.web.active_config import ActiveConfig

ADDRESS = ":9873"
DESCRIPTION = "Tails job logs and the kernel log, decides what explains each crash, and serves Prometheus counters."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_config(parser)
    parser.add_argument(
        "--config.check", dest="config_check", action="store_true", help="check configuration and packs, then exit"
    )
    flags.add_service(parser, ADDRESS)
    flags.add(
        parser,
        "--web.readers",
        default="authenticated",
        choices=("authenticated", "everyone"),
        help="who may read what jobs printed, and the journal: everyone on a trusted network; default: authenticated",
    )
    flags.add(parser, "--state.dir", metavar="DIR", help="where positions and counters are kept")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="keep nothing, send nothing: state and journal go into a temporary folder",
    )
    parser.add_argument(
        "--once", action="store_true", help="read what is there, print what /metrics would show, then exit"
    )


def run(options: argparse.Namespace) -> int:
    from exporter.cli.load_in_subprocess import load
    from exporter.process import main_loop, malloc_tuning

    if not (options.once or options.config_check):
        main_loop.defer_reloads()
    malloc_tuning.limit_retained_memory()
    if options.dry_run and not options.config_check:
        with tempfile.TemporaryDirectory(prefix="gpufault-") as folder:
            return _run(options, partial(load, options, Path(folder)))
    return _run(options, partial(load, options))


def _run(options: argparse.Namespace, load: Callable[[], Loaded]) -> int:
    config, catalogue = load()
    web = flags.web_config(options)
    if options.config_check:
        _report_valid(options, config, catalogue, web)
        return 0
    from exporter.daemon.daemon import Daemon
    from exporter.daemon.service import Service
    from exporter.process import seccomp
    from exporter.process.own_log import start_logging
    from exporter.store.state import State
    from exporter.web.readers import EVERYONE, Readers
    from exporter.web.routes import router
    from exporter.web.serving import serve

    log = start_logging(options.log_level, options.log_format)
    try:
        seccomp.deny_open_by_handle()
    except OSError as error:
        log.warning("no seccomp filter; the process may open any file by its handle", error=str(error))
    state = State(config.state_dir)
    try:
        daemon = Daemon(config, catalogue, state, node=flags.node_name(config.node), log=log)
        if options.once:
            daemon.drain()
            print(_text(daemon), end="")
            daemon.finish()
            return 0
        service = Service(daemon, load, web)
        addresses = options.web_listen_address or [ADDRESS]
        readers = Readers(everyone=options.web_readers == EVERYONE)
        app = router(service, options.web_telemetry_path, readers)
        server = serve(
            addresses, app, web, node=daemon.node, state_dir=config.state_dir, log_error=log.warning,
            on_config_change=service.web_config_read,
        )  # fmt: skip
        log.info("listening", addresses=list(server.addresses), signatures=len(catalogue.signatures), node=daemon.node)
        service.run()
        server.close(timeout=5.0)
    finally:
        state.close()
    log.info("stopped")
    return 0


def _report_valid(options: argparse.Namespace, config: Config, catalogue: Catalogue, web: ActiveConfig) -> None:
    """Print what was checked, and on stderr which paths can match no log, and which folders do not exist here."""
    from exporter.daemon.source_factory import settings_of_all
    from exporter.sources.files.discovery import WILDCARD

    checked = flags.config_file(options) or "no configuration file; the default configuration"
    held = f"{counted(len(config.sources), 'source')}, {counted(len(catalogue.signatures), 'signature')}"
    print(f"{checked} is valid: {held}")
    if web.is_file:
        print(f"{options.web_config_file} is valid: {web.settings.summary}")
    for name, settings in settings_of_all(config).items():
        globs = settings.globs()
        mistakes = globs.mistakes()
        for mistake in mistakes.values():
            print(f"note: source {name}: {mistake}", file=sys.stderr)
        for pattern, root in zip(globs.patterns, globs.roots, strict=True):
            missing = root if WILDCARD.search(pattern) or not Path(root).exists() else pattern
            if pattern not in mistakes and not os.path.lexists(missing):
                print(f"note: {missing} does not exist here; until it does, no log is read from it", file=sys.stderr)


def _text(daemon: Any) -> str:
    from exporter.metrics.exposition import Exposition

    return Exposition(daemon.snapshot).render(None, None).body.decode()
