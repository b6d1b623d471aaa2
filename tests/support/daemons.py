"""A daemon in this process, which logs nothing and reads no facts of the machine that tests run on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import structlog

from exporter.config.node import Config
from exporter.core.catalogue.loader import Catalogue
from exporter.daemon.daemon import Daemon
from exporter.node.facts import NodeFacts
from exporter.probes import Gathered
from exporter.store.state import State

NO_FACTS = Gathered(facts={}, failed={}, gpus=())


def quiet_daemon(
    config: Config,
    catalogue: Catalogue,
    gathered: Gathered = NO_FACTS,
    clock: Callable[[], float] = time.time,
) -> Daemon:
    """A daemon of node `n` with its own state; call `finish` at its end."""
    log = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    facts = NodeFacts(config.facts, {}, lambda: gathered)
    return Daemon(config, catalogue, State(config.state_dir), node="n", log=log, facts=facts, clock=clock)


def finish(daemon: Daemon) -> None:
    daemon.finish()
    daemon.state.close()
