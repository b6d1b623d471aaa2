"""The Dockerfile, read as text: no engine is needed to see that what it copies is there and gets past .dockerignore."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
RUNTIME = DOCKERFILE.rpartition("\nFROM ")[2]


def test_everything_that_is_copied_is_in_the_build_context() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = set(" ".join(copies).split())
    let_in = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert copied == let_in
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_both_stages_have_the_interpreter_in_the_same_place() -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(images) == 2
    assert len(set(images)) == 1


def test_the_daemon_runs_as_nobody_and_stops_on_sigterm() -> None:
    for instruction in ("USER 65534:65534", "EXPOSE 9873", "STOPSIGNAL SIGTERM", 'ENTRYPOINT ["gpufault"]'):
        assert f"\n{instruction}\n" in RUNTIME
    assert "HEALTHCHECK" not in RUNTIME  # the kubelet ignores it; /-/healthy is there for probes


def test_every_package_comes_by_its_hash() -> None:
    installs = [part for part in re.split(r"\n|&&", DOCKERFILE) if " install " in part and "pip" in part]
    assert installs
    assert [part for part in installs if "--require-hashes" not in part and "--no-index" not in part] == []
