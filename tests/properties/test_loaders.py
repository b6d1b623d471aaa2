"""Whatever a user writes into one of our files, the answer is a list of problems at their places."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import node
from exporter.core.catalogue.loader import load_packs
from exporter.core.text.problems import InvalidInput, Problem
from exporter.core.text.yaml_text import parse
from exporter.web import config as web_config

CONFIG = r"""
node: gpu-7
state_dir: /var/lib/gpufault
sources:
  - {kind: files, paths: ["/logs/*.log"], job: {pattern: '/job_(?P<job>\d+)/'}}
  - kind: kmsg
incidents: {window: 60s, settle: 15s}
facts: {interval: 5m, extra: {rack: r12}, commands: {room: [cat, /etc/room]}}
journal: {max_bytes: 256MiB, excerpt_lines: 10, redact: true}
outputs:
  otlp: {url: "https://otel:4318/v1/logs", tls: {ca_file: /ca.pem}, headers: {X-Scope-OrgID: "7"}, retry: {first: 1s}}
  textfile: {path: /t/gpufault.prom, mode: "0644"}
"""
PACK = r"""
pack: test
signatures:
  - id: gpu_fault
    title: A GPU fault
    vendor: amd
    layer: runtime
    severity: error
    lines: 2
    patterns:
      - 'GPU fault at (?P<address>0x[0-9a-f]+)(?:\n.*)?'
      - |-
        (?x) ring \s timeout .* seq=(\d+)
    follows: ['gpu_*']
    examples: ['GPU fault at 0x1', {text: 'GPU fault at 0x2', captures: {address: '0x2'}}]
root_causes:
  - id: bad_home
    title: A bad home
    signatures: ['gpu_*']
    when: {all: [{fact: rocm_version, version: '>=6.2, <7'}, {not: {match: gpu_fault, where: {address: '^0x'}}}]}
    verdict: workload
    strength: A
    remediation: Move it.
log_facts:
  - {id: torch, title: torch version, patterns: ['torch (?P<v>\S+)'], set: {torch_version: '{v|minor}'}}
"""


WEB = r"""
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus.example.org]
  min_version: TLS12
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  curve_preferences: [X25519]
http_server_config: {http2: true, headers: {X-Frame-Options: deny, Strict-Transport-Security: max-age=1}}
basic_auth_users: {ada: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG}
"""


def load_web(text: str, file: str) -> object:
    return web_config.load(parse(text, file))


def load_pack(text: str, file: str) -> object:
    return load_packs([(file, text)])


LOADERS: list[tuple[Callable[[str, str], object], str]] = [(node.load, CONFIG), (load_pack, PACK), (load_web, WEB)]


def problems(load: Callable[[str, str], object], text: str) -> Sequence[Problem]:
    """What is wrong with a text, if anything. Any other error fails the test."""
    try:
        load(text, "file.yaml")
    except InvalidInput as error:
        return error.problems or pytest.fail("refused without a reason")
    return ()


def is_placed(problem: Problem, text: str) -> bool:
    lines = len(text.splitlines()) + 1  # YAML too counts U+2028; and an error may stand behind the last line
    return problem.file == "file.yaml" and 1 <= problem.line <= lines and problem.col >= 1 and bool(problem.message)


TOKENS = [
    ":", ": ", "{", "}", "[", "]", "'", '"', "\n", "\n  ", "- ", "&a ", "*a", "!x ", "!!int ", "%", "#", "\t", "\x00", "\x07",
    "|", ">", "~", "null", "true", "---\n", "...\n", "? ", "<<: ", ",", "0", "9" * 5000, "-1", "1e999", ".5", "é", "\u2028",
    "\ufeff", "\\", "(", ")", "(?", "(?P<x>", "(?i:", "(?>", "|a", "*", "+", "{99999999999}", "[[:digit:]]", r"\p{Lu}", r"\n",
    "$", "^", "s", "KiB", "/",
]  # fmt: skip
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(TOKENS)), min_size=1, max_size=4)


@pytest.mark.parametrize(("load", "text"), LOADERS, ids=["config", "pack", "web"])
@given(edits=EDITS)
def test_a_text_with_anything_typed_over_it_is_read_or_refused(
    load: Callable[[str, str], object], text: str, edits: list[tuple[float, int, str]]
) -> None:
    for place, deleted, token in edits:
        at = int(place * len(text))
        text = text[:at] + token + text[at + deleted :]
    assert all(is_placed(problem, text) for problem in problems(load, text))


KEYS = st.sampled_from([
    "node", "state_dir", "sources", "incidents", "signatures", "facts", "journal", "limits", "outputs", "kind", "paths",
    "job", "pattern", "units", "window", "line_bytes", "extra", "commands", "pack", "id", "title", "vendor", "layer",
    "severity", "role", "patterns", "lines", "unless", "examples", "near_misses", "follows", "yields_to", "root_causes",
    "when", "all", "any", "not", "fact", "capture", "match", "equals", "in", "matches", "exists", "version", "where",
    "if_unknown", "verdict", "strength", "remediation", "log_facts", "set", "echoes", "crash_shapes", "text", "captures",
    "tls_server_config", "cert_file", "key_file", "client_auth_type", "client_ca_file", "client_allowed_sans", "min_version",
    "otlp", "webhook", "textfile", "url", "url_file", "headers", "tls", "retry", "batch", "mode", "resource",
    "cipher_suites", "curve_preferences", "http_server_config", "http2", "headers", "basic_auth_users", "X-Frame-Options",
])  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["files", "kmsg", "amd", "root", "60s", "1MiB", "/x", "*"])
)
TREES = st.recursive(
    SCALARS | st.text(max_size=6),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(KEYS, parts, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize(("load", "text"), LOADERS, ids=["config", "pack", "web"])
@given(tree=st.dictionaries(KEYS, TREES, min_size=1, max_size=6))
def test_a_tree_of_anything_under_known_keys_is_read_or_refused(
    load: Callable[[str, str], object], text: str, tree: dict[str, Any]
) -> None:
    text = json.dumps(tree)
    assert all(is_placed(problem, text) for problem in problems(load, text))


@pytest.mark.parametrize(("load", "text"), LOADERS, ids=["config", "pack", "web"])
def test_what_is_typed_over_is_read_before(load: Callable[[str, str], object], text: str) -> None:
    assert problems(load, text) == ()
