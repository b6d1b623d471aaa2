"""`gpufault node-conditions`: Kubernetes node conditions and events from the faults of node daemons."""

import argparse
from pathlib import Path

from exporter.cli import fleet_options
from exporter.cli import options as flags
from exporter.cli.options import seconds

DESCRIPTION = (
    "Asks the node daemons for their open faults, sets the condition GPUFaultDetected of each Kubernetes node, and writes "
    "events. Run it once in a cluster. It needs the right to patch nodes/status, to create and patch events, to get pods, "
    "and to list those of the daemons' namespace, and no other; it neither taints nor drains."
)
ADDRESS = ":9875"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    fleet_options.add_pull(parser, "node daemons to ask")
    group = parser.add_argument_group("Kubernetes; default: the cluster that it runs in")
    for name, metavar, help_text in (
        ("url", "URL", "API server"),
        ("token-file", "FILE", "bearer token; read for each request, as it is replaced within the hour"),
        ("ca-file", "FILE", "who signs the API server's certificate"),
        ("namespace", "NAME", "of the daemons' pods, which tells the nodes of --pull.dns; default: its own"),
    ):
        flags.add(group, f"--kubernetes.{name}", metavar=metavar, help=help_text)
    flags.add(
        parser,
        "--heartbeat",
        metavar="5m",
        default="5m",
        help="write an unchanged condition again after this time (default: 5m)",
    )
    parser.add_argument(
        "--once", action="store_true", help="one cycle, then exit; exit code 1 if a node cannot be reported"
    )
    flags.add_service(parser, ADDRESS)


def run(options: argparse.Namespace) -> int:
    from exporter.fleet.pull.pods import Pods, own_namespace
    from exporter.kubernetes.api_client import ApiServer
    from exporter.kubernetes.condition_service import ConditionService
    from exporter.kubernetes.reporter import Reporter
    from exporter.process.own_log import start_logging
    from exporter.web.routes import service_router
    from exporter.web.serving import serve

    config = fleet_options.pull_config(None, options)
    access = _access(options)
    if config is None:
        raise flags.UsageError("no node daemons to ask; give --pull.dns HOST:PORT")
    if access is None:
        raise flags.UsageError("not in a cluster; give --kubernetes.url URL")
    log = start_logging(options.log_level, options.log_format)
    server = ApiServer.at(*access)
    pods = Pods.at(*access, options.kubernetes_namespace or own_namespace())
    reporter = Reporter(config, server, pods, log, heartbeat=seconds("--heartbeat", options.heartbeat))
    if options.once:
        states = reporter.cycle().nodes
        print(", ".join(f"{state.replace('_', ' ')}: {count}" for state, count in sorted(states.items())) or "no nodes")
        return int(any(states.get(state) for state in ("failed", "unreachable", "no_such_node")) or not states)
    service = ConditionService(reporter, config.interval, log)
    web = flags.web_config(options)
    app = service_router(service, options.web_telemetry_path, ())
    running = serve(options.web_listen_address or [ADDRESS], app, web, log_error=log.warning)
    log.info("listening", addresses=list(running.addresses), api_server=server.base)
    service.run()
    running.close(timeout=5.0)
    return 0


def _access(options: argparse.Namespace) -> tuple[str, Path | None, Path | None] | None:
    """The API server that the flags name, else that of the cluster, its token and its authority; None outside of one."""
    from exporter.fleet.pull.pods import ACCOUNT, cluster_url

    def file(given: str | None, name: str) -> Path | None:
        path = Path(given).absolute() if given else ACCOUNT / name
        return path if given or path.exists() else None

    base = options.kubernetes_url or cluster_url()
    if base is None:
        return None
    return base, file(options.kubernetes_token_file, "token"), file(options.kubernetes_ca_file, "ca.crt")
