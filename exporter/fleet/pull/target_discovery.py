"""Finds the node daemons: reads target files, resolves names, asks a Prometheus. If a source fails, its last answer holds."""

import glob
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import yaml

from exporter.config.pull import PrometheusTargetsConfig, PullConfig
from exporter.fleet.pull.address_book import AddressBook, settle
from exporter.fleet.pull.client import NodeAccess, PullFailed, basic_auth, node_headers, node_name, secret
from exporter.fleet.pull.pods import Pods
from exporter.fleet.pull.targets import Target, by_node_name, from_file, from_prometheus, host_and_port, target
from exporter.net.credentials import ContextCache, client_context
from exporter.net.http import RequestFailed, request
from exporter.net.url import parse_url
from exporter.store.safe_open import read_start

MAX_FILE_BYTES = 16 << 20
NAME_SECONDS = 5.0  # for a daemon to say its node's name: one that is down must not delay the others
MAX_ANSWER_BYTES = 256 << 20  # of Prometheus: some 2 kB a target, of all jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """The targets by node, and the problems of finding them. targets: None if there is no answer at all."""

    targets: dict[str, Target] | None
    problems: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)  # why claims are refused, by the node that they claim


class TargetDiscovery:
    """Finds targets, again and again. For one thread at a time."""

    def __init__(self, config: PullConfig, book: AddressBook | None = None, pods: Pods | None = None) -> None:
        """book: who speaks for whom, for daemons that tell their names; pods: what else tells them."""
        self._config = config
        self._book = book or AddressBook()
        self._pods = pods
        self._listed: dict[str, set[str]] = {}  # addresses by name in `pull.dns`
        self._refused: Mapping[str, str] = {}
        self._last: dict[str, list[Target]] = {}
        self._names: dict[str, dict[str, str]] = {}  # of the nodes, by host of `pull.dns` and address
        self._contexts = ContextCache(config.tls)
        self._problems: list[str] = []

    def find(self) -> Discovered:
        """All targets. Takes as long as files, names and Prometheus do."""
        targets_: list[Target] = []
        self._problems = problems = []
        self._refused = {}
        sources = dict(self._sources())
        self._last = {key: value for key, value in self._last.items() if key in sources}
        for name, read in sources.items():
            try:
                self._last[name] = read()
            except (OSError, ValueError, RecursionError) as error:
                problems.append(f"{name}: {getattr(error, 'strerror', None) or error}")
            targets_ += self._last.get(name, [])
        targets, doubled = by_node_name(targets_)
        if not sources:
            problems.append("no target file matches pull.files")
        problems += self._refused.values()
        return Discovered(targets=targets, problems=(*problems, *doubled), refused=self._refused)

    def _sources(self) -> Iterator[tuple[str, Callable[[], list[Target]]]]:
        for pattern in self._config.files:
            for path in sorted(glob.glob(pattern, recursive=True)):
                yield path, partial(self._from_file, path)
        for name in self._config.dns:
            yield name, partial(self._from_dns, name)
        if self._config.prometheus is not None:
            yield self._config.prometheus.url, partial(self._from_prometheus, self._config.prometheus)

    def _from_file(self, path: str) -> list[Target]:
        data = read_start(path, MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"longer than {MAX_FILE_BYTES >> 20} MiB")
        try:
            # JSON is faster than YAML by far.
            document = json.loads(data) if path.endswith(".json") else yaml.load(data, _Loader)  # noqa: S506
        except yaml.YAMLError as error:
            raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from None
        return from_file(document, node_label=self._config.node_label, scheme=self._config.scheme)

    def _from_dns(self, name: str) -> list[Target]:
        host, port = host_and_port(name)
        addresses = {str(address[4][0]) for address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        bases = {address: f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses}
        if self._config.dns_names == "daemon":
            self._listed[name] = addresses
            elsewhere = dict.fromkeys(set().union(*self._listed.values()) - addresses)  # of other names: they stay
            settled = settle(self._book.spoken, elsewhere | self._names_by_daemons(name, bases), time.time())
            self._book.spoken, self._refused = settled.spoken, {**self._refused, **settled.refused}
            by_name = {node: at for node, at in settled.speakers.items() if at in addresses}
        elif self._config.dns_names == "kubernetes":
            by_name = self._nodes_of_pods(name, addresses)
        else:
            by_name = self._reversed(name, addresses)
        label, scheme = self._config.node_label, self._config.scheme
        return [
            replace(
                target(bases[address], {label: node}, node_label=label, scheme=scheme),
                is_proven=self._config.dns_names != "daemon",
            )
            for node, address in sorted(by_name.items())
        ]

    def _reversed(self, name: str, addresses: set[str]) -> dict[str, str]:
        earlier = self._names.get(name, {})
        self._names[name] = names = {address: earlier.get(address) or _reverse_lookup(address) for address in addresses}
        by_name: dict[str, str] = {}
        # A name stays with the address that had it; IPv4 wins.
        for address in sorted(
            names, key=lambda address: (earlier.get(address) != names[address], ":" in address, address)
        ):
            by_name.setdefault(names[address], address)
        return by_name

    def _nodes_of_pods(self, name: str, addresses: set[str]) -> dict[str, str]:
        self._pods = self._pods or Pods.of_this_cluster()
        nodes = self._pods.nodes_by_address()
        if unknown := sorted(addresses - nodes.keys()):
            self._problems.append(
                f"{name}: no running pod in namespace {self._pods.namespace} has the address {unknown[0]}"
            )
        return {nodes[address]: address for address in sorted(addresses & nodes.keys(), reverse=True)}

    def _names_by_daemons(self, host: str, bases: Mapping[str, str]) -> dict[str, str | None]:
        """What each daemon calls its node. Asked each time: on Kubernetes an address may move to another node."""
        config = self._config
        seconds = min(config.timeout, NAME_SECONDS)
        context = self._contexts.get()
        node_headers(config, ())  # a file that cannot be read is one problem, not one of each address

        def ask(address: str) -> tuple[str, str | None]:
            try:
                access = NodeAccess(seconds, node_headers(config, (address,)), context, config.server_name)
                return address, node_name(f"{config.scheme}://{bases[address]}", access)
            except PullFailed as error:
                self._problems.append(f"{host}: {address} does not say its node: {error}")
                return address, None

        with ThreadPoolExecutor(min(config.concurrency, len(bases))) as pool:
            return dict(pool.map(ask, sorted(bases)))

    def _from_prometheus(self, config: PrometheusTargetsConfig) -> list[Target]:
        url = parse_url(f"{config.url.rstrip('/')}/api/v1/targets?state=active")
        try:
            response = request(
                "GET", url, _headers(config), context=_context(config), seconds=self._config.timeout, max_body=MAX_ANSWER_BYTES
            )  # fmt: skip
        except RequestFailed as error:
            raise ValueError(str(error)) from None
        if response.status != 200:
            raise ValueError(f"answered {response.status}")
        return from_prometheus(json.loads(response.body), job=config.job, node_label=self._config.node_label)


def _reverse_lookup(address: str) -> str:
    """The name of an address; the address if it has none."""
    return socket.getnameinfo((address, 0), 0)[0]


def _headers(config: PrometheusTargetsConfig) -> dict[str, str]:
    if config.bearer_token_file:
        return {"Authorization": f"Bearer {secret(config.bearer_token_file)}"}
    return basic_auth(config.user, config.password_file)


def _context(config: PrometheusTargetsConfig) -> ssl.SSLContext | None:
    return client_context(config.ca_file, None, None) if config.url.startswith("https:") else None


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
