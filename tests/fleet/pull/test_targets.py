"""Which nodes are pulled: target files, names and a Prometheus."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from exporter.cli.main import main
from exporter.config import fleet
from exporter.config.pull import PullConfig
from exporter.core.text.problems import InvalidInput
from exporter.fleet.pull.target_discovery import TargetDiscovery
from exporter.fleet.pull.targets import Target, by_node_name, from_file, from_prometheus, target
from exporter.web.serving import serve
from tests.fleet.pull.nodes import Nodes, address_of, serving_nodes
from tests.web.serving import TIMEOUT


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with serving_nodes(tmp_path / "nodes") as running:
        yield running


def of_file(document: Any) -> list[tuple[str, str]]:
    return [(each.node, each.base) for each in from_file(document, node_label="node", scheme="http")]


def test_targets_of_a_file_are_named_by_their_label_or_their_host() -> None:
    document = [
        {"targets": ["gpu-1", "gpu-2.example:9999"]},
        {"targets": ["10.0.0.7:9873", "[fd00::7]:9873"], "labels": {"node": "gpu-7", "rack": "r1"}},
        {"targets": ["gpu-8"], "labels": {"__scheme__": "https", "node": "\n"}},
        {"targets": [], "labels": None},
    ]
    assert of_file(document) == [
        ("gpu-1", "http://gpu-1:9873"),
        ("gpu-2.example", "http://gpu-2.example:9999"),
        ("gpu-7", "http://10.0.0.7:9873"),
        ("gpu-7", "http://[fd00::7]:9873"),
        ("gpu-8", "https://gpu-8:9873"),
    ]


@pytest.mark.parametrize(
    "document",
    [None, {}, [1], [{"targets": "gpu-1"}], [{"targets": [7]}], [{"targets": ["gpu-1"], "labels": ["x"]}],
     [{"targets": ["http://gpu-1:9873/"]}], [{"targets": ["gpu-1:99999"]}], [{"targets": ["a b"]}], [{"targets": ["x@y"]}],
     [{"targets": ["gpu-1"], "labels": {"__scheme__": "file"}}]],
)  # fmt: skip
def test_a_file_that_is_not_of_targets_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        of_file(document)


def active(url: str, job: str = "gpufault", **labels: str) -> dict[str, Any]:
    return {"scrapeUrl": url, "labels": {"job": job, "instance": "x"}, "discoveredLabels": labels}


def test_the_active_targets_of_a_prometheus_are_those_of_its_job() -> None:
    label = "__meta_kubernetes_pod_node_name"
    answer = {"data": {"activeTargets": [
        active("https://10.0.0.7:9873/metrics", **{label: "gpu-7"}), active("http://other:9100/metrics", job="node"),
        active("http://gpu-8:9873/metrics"),
    ]}}  # fmt: skip
    assert from_prometheus(answer, job="gpufault", node_label=label) == [
        Target(node="gpu-7", base="https://10.0.0.7:9873"),
        Target(node="gpu-8", base="http://gpu-8:9873"),
    ]
    for wrong in (
        None,
        {},
        {"data": {"activeTargets": [7]}},
        {"data": {"activeTargets": [{"labels": {"job": "gpufault"}}]}},
    ):
        with pytest.raises(ValueError, match="not an answer"):
            from_prometheus(wrong, job="gpufault", node_label=label)


def test_a_name_is_that_of_the_first_target_that_has_it() -> None:
    first, second = (Target(node="n", base=f"http://{host}:9873") for host in ("a", "b"))
    found, problems = by_node_name([first, second, first])
    assert (found, problems) == (
        {"n": first},
        ["node n has two targets, http://a:9873 and http://b:9873; the first one is pulled"],
    )


def found(config: PullConfig) -> tuple[dict[str, str], list[str]]:
    discovered = TargetDiscovery(config).find()
    return {node: each.base for node, each in (discovered.targets or {}).items()}, list(discovered.problems)


def test_files_of_both_forms_are_found_by_globs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"targets": ["gpu-1"]}]')
    (tmp_path / "b.yml").write_text("- targets: [gpu-2]\n  labels: {node: n2}\n")
    config = PullConfig(files=[str(tmp_path / "*.json"), str(tmp_path / "*.yml")])
    assert found(config) == ({"gpu-1": "http://gpu-1:9873", "n2": "http://gpu-2:9873"}, [])
    assert found(PullConfig(files=[str(tmp_path / "*.none")])) == ({}, ["no target file matches pull.files"])


def test_while_a_file_is_broken_its_last_targets_hold(tmp_path: Path) -> None:
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    path.write_text('[{"targets": ["gpu-1"]}]')
    other.write_text('[{"targets": ["gpu-2"]}]')
    discovery = TargetDiscovery(PullConfig(files=[str(tmp_path / "*.json")]))
    discovery.find()
    path.write_text("[{")
    broken = discovery.find()
    assert set(broken.targets or ()) == {"gpu-1", "gpu-2"}
    assert [problem.partition(":")[0] for problem in broken.problems] == [str(path)]
    path.unlink()
    assert (set(discovery.find().targets or ()), discovery.find().problems) == ({"gpu-2"}, ())


def test_each_address_of_a_name_is_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*found(PullConfig(dns=["localhost:9873"]))[0].values()} <= {"http://127.0.0.1:9873", "http://[::1]:9873"}
    addresses = [(2, 1, 6, "", (f"10.0.0.{n}", 9873)) for n in (1, 2)] + [(10, 1, 6, "", ("fd00::1", 9873, 0, 0))]
    names = {"10.0.0.1": "gpu-1.example", "fd00::1": "gpu-1.example", "10.0.0.2": "10.0.0.2"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    monkeypatch.setattr(socket, "getnameinfo", lambda address, _: (names[address[0]], "9873"))
    nodes = {"gpu-1.example": "http://10.0.0.1:9873", "10.0.0.2": "http://10.0.0.2:9873"}
    assert found(PullConfig(dns=["gpus.example"])) == (nodes, [])


def says(answer: str, status: int = 200) -> PlainTextResponse:
    return PlainTextResponse(answer, status)


def pods(monkeypatch: pytest.MonkeyPatch, port: int, listed: list[int]) -> TargetDiscovery:
    """A headless service, whose host has the addresses of the listed nodes."""
    real = socket.getaddrinfo

    def resolve(host: str, *more: Any, **options: Any) -> list[Any]:
        if host != "gpufault.gpu.svc":
            return real(host, *more, **options)
        return [(2, 1, 6, "", (address_of(number), port)) for number in listed]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return TargetDiscovery(PullConfig(dns=[f"gpufault.gpu.svc:{port}"], dns_names="daemon"))


def test_on_kubernetes_the_daemon_of_an_address_names_its_node(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's address has no name by which its node is known."""
    listed = [1, 2, 3]
    for number in listed:
        nodes.instead[number] = says(json.dumps({"node": f"n{number}", "segments": []}))
    discovery = pods(monkeypatch, nodes.port, listed)

    def find() -> tuple[dict[str, str], tuple[str, ...]]:
        discovered = discovery.find()
        return {node: each.base for node, each in (discovered.targets or {}).items()}, discovered.problems

    first = {f"n{number}": f"http://{address_of(number)}:{nodes.port}" for number in listed}
    assert find() == (first, ())
    nodes.instead[2] = says("no", 500)
    after, (problem,) = find()
    assert after == first  # a daemon that does not answer keeps its name
    assert problem == f"gpufault.gpu.svc:{nodes.port}: {address_of(2)} does not say its node: answered 500"
    nodes.instead[3] = says(json.dumps({"node": "n1", "segments": []}))
    after, (_, problem) = find()
    assert after == {name: base for name, base in first.items() if name != "n3"}  # n1 stays where it was
    assert f"{address_of(3)} claims to be node n1, which is at {address_of(1)}; it has spoken for n3" in problem


@pytest.mark.parametrize("answer", ["", "[]", '{"node": 7}', '{"node": ""}', '{"node": "a\\nb"}'])
def test_an_answer_without_a_name_is_a_problem(nodes: Nodes, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.instead[1] = says(answer)
    discovered = pods(monkeypatch, nodes.port, [1]).find()
    assert discovered.targets == {}
    assert "does not say its node" in str(discovered.problems)


def test_a_prometheus_is_asked_for_its_targets(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    body = json.dumps({"data": {"activeTargets": [active("http://gpu-8:9873/metrics")]}})
    requests: list[Request] = []

    async def prometheus(scope: Scope, receive: Receive, send: Send) -> None:
        requests.append(Request(scope))
        await PlainTextResponse(body, 500 if len(requests) > 1 else 200)(scope, receive, send)

    server = serve(["127.0.0.1:0"], prometheus)
    try:
        url = f"http://{server.addresses[0]}"
        discovery = TargetDiscovery(
            PullConfig.model_validate({"prometheus": {"url": url, "bearer_token_file": str(token)}})
        )
        assert set(discovery.find().targets or ()) == {"gpu-8"}
        failed = discovery.find()
    finally:
        server.close(TIMEOUT)
    assert (set(failed.targets or ()), failed.problems) == ({"gpu-8"}, (f"{url}: answered 500",))
    assert str(requests[0].url) == f"{url}/api/v1/targets?state=active"
    assert requests[0].headers["authorization"] == "Bearer t0ken"


def test_the_address_of_a_target_is_that_of_a_server() -> None:
    for wrong in ("", ":9873", "gpu 1", "gpu-1:x", "gpu-1:0", "[::1", "-" * 300):
        with pytest.raises(ValueError, match=r"."):
            target(wrong, {}, node_label="node", scheme="http")


# Configuration and flags.


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("pull: {}", "names no node; add files, dns or prometheus"),
        ("pull: {files: [targets.json]}", "relative"),
        ("pull: {files: [/t.json], concurrency: 0}", "must be at least 1, not 0"),
        ("pull: {prometheus: {url: 'ftp://x'}}", "https://"),
        ("pull: {files: [/t.json], tls: {cert_file: /c}}", "needs key_file"),
        ("pull: {files: [/t.json]}\njournal: /j", "journal and pull both say what to read; keep one of them"),
    ],
)
def test_a_wrong_section_is_refused_at_its_place(text: str, what: str) -> None:
    with pytest.raises(InvalidInput, match=r".") as caught:
        fleet.load(text, "fleet.yaml")
    assert what in str(caught.value.problems[0])


def test_flags_say_what_to_pull(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["fleet", "--config.check", f"--pull.files={tmp_path}/*.json", "--pull.interval=5s"]) == 0
    assert capsys.readouterr().out == f"the flags are valid: journals of the nodes in {tmp_path}/*.json\n"
    assert main(["fleet", "--config.check", "--pull.files=/t.json", "--pull.interval=often"]) == 2
    assert "--pull.interval" in capsys.readouterr().err
    assert main(["fleet", "--config.check", "--pull.dns=x:1", f"--journal={tmp_path}"]) == 2
    assert "--journal and --pull.… each say" in capsys.readouterr().err
    assert main(["fleet", "--config.check", "--pull.user=ada"]) == 2
    file = tmp_path / "fleet.yaml"
    file.write_text("pull: {files: [/t.json], interval: 90s, prometheus: {url: 'http://p:9090', job: x}}\n")
    monkeypatch.setenv("GPUFAULT_PULL_PROMETHEUS", "http://q:9090")
    assert main(["fleet", "--config.check", f"--config.file={file}", f"--pull.ca-file={tmp_path}/ca"]) == 0
    assert capsys.readouterr().out == f"{file} is valid: journals of the nodes in /t.json, http://q:9090\n"
