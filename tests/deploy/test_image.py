"""The Dockerfile, checked as text: copied files exist and are not excluded by .dockerignore."""

import re
import subprocess
import sys
from pathlib import Path

from exporter import __version__
from tests.support.programs import needs

ROOT = Path(__file__).parents[2]
HADOLINT = Path(sys.executable).with_name("hadolint")
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
RUNTIME = DOCKERFILE.rpartition("\nFROM ")[2]


def test_every_copied_file_is_in_the_build_context() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = set(" ".join(copies).split())
    let_in = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert copied == let_in
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_both_stages_have_the_interpreter_at_the_same_path() -> None:
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE_IMAGE}"] * 2
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-\w+", base)


def test_the_daemon_runs_unprivileged_and_stops_on_sigterm() -> None:
    for instruction in (
        "USER 65534:65534",
        "STOPSIGNAL SIGTERM",
        'ENTRYPOINT ["gpufault"]',
        f"ARG VERSION={__version__}",
    ):
        assert f"\n{instruction}\n" in RUNTIME


def test_the_health_check_uses_a_program_in_the_image() -> None:
    (asks,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", RUNTIME, re.MULTILINE)
    interpreter, isolated, script, address = re.findall(r'"([^"]+)"', asks)
    assert (interpreter, isolated) == ("/opt/gpufault/bin/python", "-I")
    assert f"COPY deploy/image/ask.py {script}\n" in DOCKERFILE
    assert address == "127.0.0.1:9873/-/healthy"
    assert "\nEXPOSE 9873 " in RUNTIME


@needs(absent=[] if HADOLINT.exists() else ["hadolint"])
def test_hadolint_passes() -> None:
    done = subprocess.run([HADOLINT, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_package_is_pinned_by_hash() -> None:
    installs = [part for part in re.split(r"\n|&&", DOCKERFILE) if "install " in part and "pip" in part]
    assert installs
    assert [part for part in installs if "--require-hashes" not in part and "--no-index" not in part] == []
