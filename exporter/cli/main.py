"""The command line: which commands there are, and the only place that turns an outcome into an exit code.

Exit codes: 0 fine, 1 findings or invalid input, 2 usage, 3 could not run. A command imports what it needs when it runs,
so that `--help` answers in the time of argparse alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from exporter import __version__
from exporter.cli import (
    correlate,
    demo,
    doctor,
    explain,
    facts,
    fleet,
    inject,
    node_check,
    run,
    scan,
    signatures,
    simulate,
)

FINE, FINDINGS, USAGE, COULD_NOT_RUN = 0, 1, 2, 3
COMMANDS = {
    "run": run,
    "scan": scan,
    "explain": explain,
    "facts": facts,
    "signatures": signatures,
    "correlate": correlate,
    "fleet": fleet,
    "simulate": simulate,
    "inject": inject,
    "demo": demo,
    "doctor": doctor,
    "node-check": node_check,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `gpufault scan … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        return _explained(error)
    return code


def _explained(error: Exception) -> int:
    from exporter.core.problems import InvalidInput
    from exporter.state import StateUnusable

    if isinstance(error, InvalidInput):
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return FINDINGS
    if isinstance(error, OSError | StateUnusable):
        print(f"gpufault: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    if os.environ.get("GPUFAULT_TRACEBACK"):
        raise error
    print(
        f"gpufault: internal error: {error!r}; run it again with GPUFAULT_TRACEBACK=1 and report what it prints",
        file=sys.stderr,
    )
    return COULD_NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpufault",
        description="Why do GPU jobs crash on this fleet, and what about our configuration makes it worse?",
        epilog="`gpufault demo` shows it at work without a GPU, root or network.",
    )
    parser.add_argument("--version", action="version", version=f"gpufault {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.DESCRIPTION)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
