"""The node daemons to pull from: what Prometheus' file_sd format, its API and DNS say. Pure; `discovery` does the I/O."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from exporter.core.text.phrases import printable
from exporter.net.url import parse_url, plain_address

DEFAULT_PORT = 9873
MAX_TARGETS = 20_000
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]{1,253})(?::([0-9]{1,5}))?\Z")
_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A node daemon: the name of its node, and its address as http://HOST:PORT.

    is_proven: whether anybody else than the daemon itself has named its node.
    """

    node: str
    base: str
    is_proven: bool = True

    @property
    def audience(self) -> tuple[str, ...]:
        """Whom a token is for: the node if its name is proven, and its address if that is one."""
        host = plain_address(urlsplit(self.base).hostname or "")
        return (*((self.node,) if self.is_proven else ()), *((host,) if host else ()))


def target(address: str, labels: Mapping[str, Any], *, node_label: str, scheme: str) -> Target:
    """A target from its address (HOST or HOST:PORT) and labels. Raises ValueError."""
    match = _ADDRESS.match(address)
    if not match:
        raise ValueError(f"{printable(address)[:80]!r} is not HOST:PORT")
    scheme = str(labels.get("__scheme__") or scheme)
    if scheme not in _SCHEMES:
        raise ValueError(f"{address}: __scheme__ is neither http nor https")
    base = f"{scheme}://{match[1]}:{match[2] or DEFAULT_PORT}"
    parse_url(base)
    return Target(node=_node(labels.get(node_label)) or match[1].strip("[]"), base=base)


def from_file(document: Any, *, node_label: str, scheme: str) -> list[Target]:
    """The targets of a file in Prometheus' file_sd format. Raises ValueError."""
    if not isinstance(document, list):
        raise ValueError("not a list of {targets, labels}")
    targets = []
    for group in document:
        addresses = group.get("targets") if isinstance(group, dict) else None
        if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
            raise ValueError("not a list of {targets, labels}")
        labels = group.get("labels") or {}
        if not isinstance(labels, dict):
            raise ValueError("labels are not a mapping")
        targets += [target(address, labels, node_label=node_label, scheme=scheme) for address in addresses]
    return targets


def from_prometheus(answer: Any, *, job: str, node_label: str) -> list[Target]:
    """The active targets of one job, from the answer of Prometheus' `/api/v1/targets`. Raises ValueError."""
    try:
        active = answer["data"]["activeTargets"]
        chosen = [scrape for scrape in active if scrape["labels"].get("job") == job]
        return [_from_scrape(scrape, node_label) for scrape in chosen]
    except (LookupError, TypeError, AttributeError):
        raise ValueError("not an answer of Prometheus' /api/v1/targets") from None


def _from_scrape(active: Mapping[str, Any], node_label: str) -> Target:
    url = urlsplit(active["scrapeUrl"])
    discovered = active.get("discoveredLabels") or {}
    labels = {node_label: active["labels"].get(node_label) or discovered.get(node_label)}
    return target(url.netloc, labels, node_label=node_label, scheme=url.scheme)


def _node(name: object) -> str:
    """A label's value as a node's name; empty if it is not one."""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 253 else ""


def by_node_name(targets: Iterable[Target]) -> tuple[dict[str, Target], list[str]]:
    """The targets by node, and what is wrong with the others: a name is that of the first target that has it."""
    by_node: dict[str, Target] = {}
    problems: list[str] = []
    for target in targets:
        first = by_node.setdefault(target.node, target)
        if first != target:
            problems.append(
                f"node {target.node} has two targets, {first.base} and {target.base}; the first one is pulled"
            )
    if len(by_node) > MAX_TARGETS:
        problems.append(f"{len(by_node):,} targets; the first {MAX_TARGETS:,} are pulled")
        by_node = dict(list(by_node.items())[:MAX_TARGETS])
    return by_node, problems


def host_and_port(text: str) -> tuple[str, int]:
    """Host and port of a name in `pull.dns`. Raises ValueError."""
    match = _ADDRESS.match(text)
    if not match:
        raise ValueError(
            f"{printable(text)[:80]!r} is not HOST:PORT; write for example gpu-07.example.org:{DEFAULT_PORT}"
        )
    return match[1].strip("[]"), int(match[2] or DEFAULT_PORT)


def problem_text(problems: Sequence[str]) -> str:
    """The first problem, and how many others there are."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""
