"""`gpufault facts`: prints the facts of this node, as diagnosis and the correlator use them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.text.printable import printable

if TYPE_CHECKING:
    from exporter.core.facts.gpus import Gpu

DESCRIPTION = (
    "Prints what is known of this node. A fact that is not known is absent; a probe that failed is told on stderr."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", default="text", choices=("text", "json"))
    parser.add_argument(
        "--path.rootfs", dest="path_rootfs", default="/", metavar="DIR", help="the root of the node's files"
    )
    parser.add_argument("--home", metavar="DIR", help="a home folder of jobs, where homes are not below /home")


def _card_summary(gpu: Gpu) -> Iterator[str]:
    """The values that differ between cards, in one line."""
    yield gpu.facts.get("gpu_model", gpu.vendor or "a GPU")
    for name, value in (
        ("unique id", gpu.unique_id),
        ("serial", gpu.serial),
        ("KFD node", gpu.kfd_node),
        ("link now", " ".join(filter(None, (gpu.pcie_speed, gpu.facts.get("pcie_width"))))),
        ("retired pages", gpu.facts.get("gpu_retired_pages")),
    ):
        if value is not None and value != "":
            yield f"{name} {value}"


def run(options: argparse.Namespace) -> int:
    from exporter.probes import gather

    if not os.path.isdir(options.path_rootfs):
        print(f"gpufault facts: --path.rootfs: {printable(options.path_rootfs)} is not a folder", file=sys.stderr)
        return 3
    gathered = gather(Path(options.path_rootfs), home=Path(options.home) if options.home else None, environ=os.environ)
    if options.format == "json":
        print(json.dumps(dict(sorted(gathered.facts.items())), indent=2))
    else:
        width = max((len(name) for name in gathered.facts), default=0)
        for name, value in sorted(gathered.facts.items()):
            print(f"{name:<{width}}  {value}")
        if gathered.gpus:
            print()
        for gpu in gathered.gpus:
            print(f"{gpu.pci}  {', '.join(_card_summary(gpu))}")
    for probe, why in sorted(gathered.failed.items()):
        print(f"probe {probe} failed: {why}", file=sys.stderr)
    return 0
