"""`gpufault clear`: clears the open faults of a GPU, for example after a repair that left no trace in the kernel log."""

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
    "HTTP, as an administrator of its web configuration. Exit code 0: cleared; 1: there was no such fault; 3: the daemon "
    "did not answer. A fault that is seen again opens again."
)
MAX_ANSWER = 1 << 20  # bytes
PATH = "/api/v1/faults/clear"


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
    except InvalidRequest as error:
        raise flags.UsageError(str(error)) from error
    try:
        cleared = _over_http(options) if options.url else _over_socket(options)
    except InvalidRequest as error:
        print(f"gpufault: {error}", file=sys.stderr)
        return 1
    for fault in cleared:
        where = fault["gpu"] or "the node"
        print(f"cleared: {fault['root_cause']} {fault['signature']} of {where}, open since {_opened(fault)}")
    return 0


def _over_socket(options: argparse.Namespace) -> list[dict[str, Any]]:
    from http.client import HTTPException

    from exporter.web import control_socket

    folder = Path(options.state_dir) if options.state_dir else flags.load_config(options).state_dir
    name = str(folder / control_socket.NAME)
    try:
        status, answer = control_socket.post(folder, PATH, _body(options), most=MAX_ANSWER)
    except PermissionError as error:
        raise PermissionError(error.errno, "permission denied; be root, or use --url as a user", str(folder)) from error
    except OSError as error:
        message = f"{error.strerror or error}; is gpufault running, with this state folder?"
        raise OSError(error.errno, message, name) from error
    except HTTPException as error:
        raise OSError(f"{name}: no answer of gpufault") from error
    return _cleared(name, status, answer)


def _over_http(options: argparse.Namespace) -> list[dict[str, Any]]:
    import urllib.error

    url = f"{options.url.rstrip('/')}{PATH}"
    try:
        answer = daemon_client.ask(url, options, timeout=40.0, most=MAX_ANSWER, body=_body(options))
    except urllib.error.HTTPError as error:
        return _cleared(options.url, error.code, error.read(MAX_ANSWER))
    except OSError as error:
        raise OSError(f"{options.url}: {daemon_client.failure_of(error)}; is gpufault running?") from error
    return _cleared(options.url, 200, answer)


def _body(options: argparse.Namespace) -> bytes:
    return json.dumps({"gpu": options.gpu, "reason": options.reason}).encode()


def _cleared(whence: str, status: int, body: bytes) -> list[dict[str, Any]]:
    """The cleared faults in an answer. Raises InvalidRequest if there is nothing to clear, OSError if it is refused."""
    from exporter.core.diagnosis.clear_request import InvalidRequest

    text = body.decode(errors="replace").strip()
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if status == 200:
            cleared: list[dict[str, Any]] = json.loads(text)["cleared"]
            return cleared
        text = str(json.loads(text)["error"])
    if status == 422:
        raise InvalidRequest(text)
    raise OSError(f"{whence}: {status}: {text}")


def _opened(fault: dict[str, Any]) -> str:
    return str((fault["openings"] or [fault["time"]])[-1])
