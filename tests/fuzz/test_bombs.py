"""Small files that would cost much: each is refused with a reason, in bounded memory and time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.heavy

MEMORY_BYTES = 1 << 30  # of address space: Python and the libraries take a third
SECONDS = 60  # far above what the tests take, so that a hang is a failure

PACK = """
pack: test
signatures:
  - {id: gpu_fault, title: A GPU fault, vendor: amd, layer: runtime, severity: error, PATTERNS}
"""
CONFIG = "sources: [{kind: files, paths: [/x], job: {pattern: PATTERN}}]"
PATTERNS = {
    "repetitions of repetitions": "fault((a{1000}){1000}){1000}",
    "optional ones": "fault(((a?){1000}){1000}){1000}",
    "a long one": "fault a{99999999}",
    "a number beyond 64 bits": "fault a{99999999999999999999}",
    "deep groups": "fault" + "(" * 5000 + "a" + ")" * 5000,
    "many branches": "fault(" + "".join(f"{n}|" for n in range(50_000)) + "b)",
}
TEXTS = {
    "aliases of aliases": "a: &a [x,x,x,x]\n" + "".join(f"k{n}: &k{n} [*a,*a,*a,*a]\n" for n in range(50)),
    "an anchor in itself": "a: &a [*a]",
    "deep lists": "a: " + "[" * 100_000,
    "deep mappings": "a: " + "{a: " * 100_000,
    "deep blocks": "".join(" " * n + "a:\n" for n in range(2000)),
    "a long number": "node: " + "9" * 1_000_000,
    "a large exponent": "incidents: {window: 1e999999}",
    "five megabytes": "a: b\n" * 1_000_000,
    "one key": "a" * 3_000_000 + ": 1",
    "the same key": "a: 1\n" * 100_000,
}
CASES = [
    *(("pack", name, PACK.replace("PATTERNS", f"patterns: [{json.dumps(p)}]")) for name, p in PATTERNS.items()),
    *(
        ("pack", f"{name}, unless", PACK.replace("PATTERNS", f"patterns: [GPU fault], unless: [{json.dumps(p)}]"))
        for name, p in PATTERNS.items()
    ),
    *(("config", name, CONFIG.replace("PATTERN", json.dumps(f"(?P<job>{p})"))) for name, p in PATTERNS.items()),
    *((what, name, text) for what in ("config", "pack", "web") for name, text in TEXTS.items()),
]
# Each text is loaded in a fork of its own, of a process that has imported everything.
LOADER = f"""
import json, os, resource, signal, sys
from exporter.config import node as config
from exporter.core.catalogue.loader import load_packs
from exporter.core.text.problems import InvalidInput
from exporter.core.text.yaml_text import parse
from exporter.web import config as web_config
LOAD = {{
    "config": config.load,
    "pack": lambda text, file: load_packs([(file, text)]),
    "web": lambda text, file: web_config.load(parse(text, file)),
}}
for line in sys.stdin:
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
        signal.alarm({SECONDS})
        what, text = json.loads(line)
        try:
            LOAD[what](text, "f.yaml")
        except InvalidInput as error:
            print(json.dumps(str(error.problems[0])), flush=True)
        os._exit(0)
    print(os.wait()[1], flush=True)
"""


@pytest.fixture(scope="module")
def loader() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", LOADER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize(("what", "name", "text"), CASES, ids=[f"{what}: {name}" for what, name, _ in CASES])
def test_a_bomb_is_refused(loader: subprocess.Popen[str], what: str, name: str, text: str) -> None:
    assert loader.stdin
    assert loader.stdout
    print(json.dumps([what, text]), file=loader.stdin, flush=True)
    problem = json.loads(loader.stdout.readline())
    assert isinstance(problem, str), f"exit status {problem}"
    assert json.loads(loader.stdout.readline()) == 0
    assert problem.startswith("f.yaml:")
    assert len(problem) < 10_000
