"""`gpufault clear`: clears the open faults of a GPU, for example after a repair that left no trace in the kernel log."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from exporter.cli import daemon_client
from exporter.cli import options as flags

DESCRIPTION = (
    "Clear the open faults of a GPU of this node, as after a repair that left no trace in the kernel log. The reason is kept "
    "in the journal. Asks the daemon through a socket in its state folder, as root or as the daemon's user; with --url over "
    "HTTP, as a user of its web configuration. Exit code 0: cleared; 1: there was no such fault; 3: the daemon did not "
    "answer. A fault that is seen again opens again."
)
MAX_ANSWER = 1 << 20  # bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gpu", metavar="GPU", help="its PCI address, such as 0000:c1:00.0; node: faults without a GPU; all: every fault"
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="what was done, for those who read it later")
    flags.add_config(parser)
    flags.add(parser, "--state.dir", metavar="DIR", help="as of the daemon, if it was given there")
    flags.add(parser, "--url", metavar="URL", help="the daemon, such as https://node-7:9873")
    daemon_client.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from exporter.core.diagnosis.clear_request import ClearRequest, InvalidRequest

    try:
        ClearRequest.from_json({"gpu": options.gpu, "reason": options.reason}, "")
        cleared = _over_http(options) if options.url else _over_socket(options)
    except InvalidRequest as error:
        print(f"gpufault: {error}", file=sys.stderr)
        return 1
    for fault in cleared:
        where = fault["gpu"] or "the node"
        print(f"cleared: {fault['root_cause']} {fault['signature']} of {where}, open since {_opened(fault)}")
    return 0


def _over_socket(options: argparse.Namespace) -> list[dict[str, Any]]:
    from exporter.daemon import control_socket

    folder = Path(options.state_dir) if options.state_dir else flags.load_config(options).state_dir
    try:
        return control_socket.request(folder, options.gpu, options.reason)
    except PermissionError as error:
        raise PermissionError(error.errno, "permission denied; be root, or use --url as a user", str(folder)) from error
    except OSError as error:
        what = f"{error.strerror or error}; is gpufault running, with this state folder?"
        raise OSError(error.errno, what, str(folder / control_socket.NAME)) from error


def _over_http(options: argparse.Namespace) -> list[dict[str, Any]]:
    import urllib.error

    from exporter.core.diagnosis.clear_request import InvalidRequest

    url = f"{options.url.rstrip('/')}/api/v1/faults/clear"
    body = json.dumps({"gpu": options.gpu, "reason": options.reason}).encode()
    try:
        answer = json.loads(daemon_client.ask(url, options, timeout=40.0, most=MAX_ANSWER, body=body))
    except urllib.error.HTTPError as error:
        text = error.read(MAX_ANSWER).decode(errors="replace").strip()
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = str(json.loads(text)["error"])
        if error.code == 422:  # there is nothing to clear
            raise InvalidRequest(text) from error
        raise OSError(f"{options.url}: {error.code}: {text}") from error
    except daemon_client.Unusable as error:
        raise OSError(str(error)) from error
    cleared: list[dict[str, Any]] = answer["cleared"]
    return cleared


def _opened(fault: dict[str, Any]) -> str:
    return str((fault["openings"] or [fault["time"]])[-1])
