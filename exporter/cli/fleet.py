"""`gpufault fleet`: the correlator as a service."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from exporter.cli import fleet_options
from exporter.cli import options as flags
from exporter.cli.options import seconds

if TYPE_CHECKING:
    from exporter.config.fleet import FleetConfig

DESCRIPTION = (
    "Runs `gpufault correlate` again and again, and serves its last result: a page at /, JSON below /api/v1, /metrics. A "
    "refresh that fails leaves the last result in place, and is told in all three. SIGHUP and POST /-/reload read the "
    "configuration again and refresh at once."
)
ADDRESS = ":9874"
PULL_REST_SECONDS = 1.0  # between two looks at which nodes are due


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, "--config.file", metavar="FILE", help="default: /etc/gpufault/fleet.yaml if it is there")
    parser.add_argument("--config.check", dest="config_check", action="store_true", help="check it, then exit")
    source = parser.add_mutually_exclusive_group()
    flags.add(source, "--journal", metavar="DIR", help="a folder that node journals are gathered in")
    flags.add(source, "--prometheus", metavar="URL", help="Prometheus, Thanos, Mimir or VictoriaMetrics")
    fleet_options.add_prometheus(parser)
    fleet_options.add_location_facts(parser)
    fleet_options.add_lost(parser)
    fleet_options.add_pull(parser)
    flags.add(
        parser,
        "--window",
        metavar="7d",
        help="its length; it ends at the newest record, or now; default: 7d",
    )
    flags.add(parser, "--refresh.interval", metavar="1h", help="from one refresh to the next; default: 1h")
    flags.add(parser, "--refresh.timeout", metavar="30m", help="a refresh that takes longer is ended; default: 30m")
    flags.add(
        parser,
        "--findings.file",
        metavar="FILE",
        help="remembers findings over a restart, so that later windows confirm them; without it, as long as it runs",
    )
    flags.add(
        parser, "--store.file", metavar="FILE",
        help="the history of the journals, kept over a restart; default: a temporary one, read anew",
    )  # fmt: skip
    flags.add(parser, "--store.history", metavar="90d", help="how long it is kept; default: 90d")
    flags.add_catalogue(parser)
    flags.add_service(parser, ADDRESS)


def run(options: argparse.Namespace) -> int:
    import scipy  # noqa: F401 - each refresh needs it: better told now

    from exporter.config import packs
    from exporter.config.fleet import DEFAULT_FILE
    from exporter.fleet.history.store import Store
    from exporter.fleet.pull.puller import Puller
    from exporter.fleet.service.answers import router
    from exporter.fleet.service.fleet_service import FleetService
    from exporter.fleet.service.html import Titles
    from exporter.process.own_log import start_logging
    from exporter.web.serving import serve

    load = _loader(options)
    config = load()
    sources = {
        "--journal": options.journal, "--prometheus": options.prometheus, "--pull.…": fleet_options.names_nodes(options),
    }  # fmt: skip
    if len(given := [flag for flag, value in sources.items() if value]) > 1:  # argparse does not see the environment
        raise flags.UsageError(f"{' and '.join(given)} each say what to read; give one")
    if config.source == "nothing":
        raise flags.UsageError("nothing to read; give --pull.files GLOB, --journal DIR or --prometheus URL")
    web = flags.web_config(options)
    titles = Titles(packs.load([folder for folder in config.signatures.dirs if folder.exists()]))
    if options.config_check:
        file = flags.config_file(options, DEFAULT_FILE)
        print(f"{f'{file} is' if file else 'the flags are'} valid: {config.source}")
        if config.pull is not None and config.pull.user is not None:
            advice = "each node sees this password, which reads all others; use pull.token_key_file (docs/journals.md)"
            print(f"note: pull.user: {advice}", file=sys.stderr)
        if config.journal is not None and not config.journal.is_dir():
            print(
                f"note: {config.journal} does not exist here; until it does, there is nothing to read", file=sys.stderr
            )
        return 0
    log = start_logging(options.log_level, options.log_format)
    with ExitStack() as on_exit:
        store = puller = None
        if config.journal is not None or config.pull is not None:
            scratch = on_exit.enter_context(TemporaryDirectory(prefix="gpufault-fleet-"))
            store = Store(config.store.file or Path(scratch, "history.duckdb"))
            on_exit.callback(store.close)
        if config.pull is not None:
            puller = Puller(config.pull, log)
            on_exit.callback(puller.close)
        service = FleetService(config, load, web, log, titles, store, puller)
        app = router(service, options.web_telemetry_path)
        addresses = options.web_listen_address or [ADDRESS]
        server = serve(addresses, app, web, log_error=log.warning, on_config_change=service.web_config_read)
        log.info("listening", addresses=list(server.addresses), source=service.source)
        source = puller or config.journal
        if store is not None and source is not None:
            store.follow(
                source, interval=PULL_REST_SECONDS if puller else config.store.interval, history=config.store.history,
                log=lambda why: log.error("journals cannot be read", reason=why),
            )  # fmt: skip
        service.run()
        server.close(timeout=5.0)
    return 0


def _loader(options: argparse.Namespace) -> Callable[[], FleetConfig]:
    """A function that reads the file and applies the flags. It raises InvalidInput, OSError."""

    def load() -> FleetConfig:
        from exporter.config import fleet
        from exporter.store.safe_open import read_text

        name = flags.config_file(options, fleet.DEFAULT_FILE)
        loaded = fleet.FleetConfig()
        if name is not None:
            loaded = fleet.load(read_text(name), name)
        return _with_flags(loaded, options)

    return load


def _with_flags(config: FleetConfig, options: argparse.Namespace) -> FleetConfig:
    from exporter.config.fleet import PrometheusConfig

    given: dict[str, Any] = {"lost": fleet_options.lost_config(options, config.lost)}
    prometheus: dict[str, Any] = {
        name: Path(value).absolute() if name.endswith("_file") else value
        for name in PrometheusConfig.model_fields
        if name != "url" and (value := getattr(options, f"prometheus_{name}"))
    }
    if options.journal:
        given |= {"journal": Path(options.journal).absolute(), "prometheus": None, "pull": None}
    if options.prometheus:
        if not options.prometheus.startswith(("http://", "https://")):
            raise flags.UsageError(f"--prometheus: {options.prometheus!r} is not an http:// or https:// address")
        given |= {"journal": None, "pull": None, "prometheus": PrometheusConfig(url=options.prometheus, **prometheus)}
    elif config.prometheus is not None and prometheus and not options.journal:
        given["prometheus"] = config.prometheus.model_copy(update=prometheus)
    if not (options.journal or options.prometheus):
        pull = fleet_options.pull_config(config.pull, options)
        others = {"journal": None, "prometheus": None} if fleet_options.names_nodes(options) else {}
        given |= {"pull": pull, **others}
    if options.window:
        given["window"] = seconds("--window", options.window)
    refresh = {
        name: seconds(f"--refresh.{name}", value)
        for name in ("interval", "timeout")
        if (value := getattr(options, f"refresh_{name}"))
    }
    if refresh:
        given["refresh"] = config.refresh.model_copy(update=refresh)
    if options.store_file:
        stored = given.get("store", config.store)
        given["store"] = stored.model_copy(update={"file": Path(options.store_file).absolute()})
    if options.store_history:
        stored = given.get("store", config.store)
        given["store"] = stored.model_copy(update={"history": seconds("--store.history", options.store_history)})
    if options.places:
        given["places"] = options.places
    if options.findings_file:
        given["findings_file"] = Path(options.findings_file).absolute()
    if options.signatures_dir:
        folders = [Path(folder).absolute() for folder in options.signatures_dir]
        given["signatures"] = config.signatures.model_copy(update={"dirs": folders})
    return config.model_copy(update=given)
