"""Files for a node (configuration, units, scrape job), checked by the programs that read them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from exporter.core.text.yaml_text import parse
from exporter.web import config as web_config
from tests.support.programs import needs

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
GPUFAULT = Path(sys.executable).with_name("gpufault")

needs_systemd = needs("systemd-analyze")
each_unit = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
needs_promtool = needs("promtool")


def run(*command: str | Path) -> tuple[int, str]:
    """Exit code, and all that was said."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_the_example_configuration_is_valid() -> None:
    code, said = run(GPUFAULT, "run", "--config.check", f"--config.file={DEPLOY / 'gpufault.yaml'}")
    assert code == 0, said


def test_the_example_web_configuration_is_valid_beside_its_certificate(tmp_path: Path) -> None:
    example = tmp_path / "web-config.yaml"
    example.write_text((DEPLOY / "web-config.yaml").read_text())
    check = (GPUFAULT, "run", "--config.check", f"--web.config.file={example}")
    code, said = run(*check)
    assert code == 2
    assert f"{example}:7:3: tls_server_config.cert_file: {tmp_path}/tls.crt: No such file or directory; use" in said
    certificate = trustme.CA().issue_cert("gpu-07.example.org")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    code, said = run(*check)
    assert code == 0, said
    assert f"{example} is valid: TLS, NoClientCert, no users" in said


def test_commented_keys_of_the_example_web_configuration_are_valid(tmp_path: Path) -> None:
    text = re.sub(r"^( *)# (?=( *)[a-z_A-Z-]+: ?)", r"\1", (DEPLOY / "web-config.yaml").read_text(), flags=re.MULTILINE)
    text = text.replace("$2y$10$…", "$2y$10$" + "a" * 21 + "." + "a" * 31)
    config = web_config.load(parse(text, "web-config.yaml"))
    assert config.tls_server_config
    assert config.tls_server_config.client_allowed_sans == ["prometheus.example.org"]
    assert list(config.basic_auth_users) == ["prometheus"]
    assert list(config.headers) == ["Strict-Transport-Security"]


def test_every_variable_of_the_default_file_belongs_to_a_flag() -> None:
    usage = run(GPUFAULT, "run", "--help")[1] + run(GPUFAULT, "node-check", "--help")[1]
    offered = set(re.findall(r"GPUFAULT_\w+", (DEPLOY / "systemd/gpufault.default").read_text()))
    assert offered
    assert offered <= set(re.findall(r"GPUFAULT_\w+", usage))


@needs_systemd
@each_unit
def test_systemd_accepts_the_unit(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name
    unit.write_text(path.read_text().replace("/opt/gpufault/bin/gpufault", str(GPUFAULT)))
    code, said = run("systemd-analyze", "--man=no", "verify", unit)
    assert code == 0, said


@needs_systemd
@each_unit
def test_the_unit_has_a_low_exposure_score(path: Path) -> None:
    code, said = run("systemd-analyze", "security", "--offline=true", "--threshold=25", path)
    assert code == 0, said


@needs_systemd
@each_unit
def test_the_unit_denies_open_by_handle_and_allows_seccomp(path: Path) -> None:
    listed = re.findall(r"^SystemCallFilter=(~?)(.*)$", path.read_text(), re.MULTILINE)
    allowed: set[str] = set()
    for refuses, names in listed:
        calls = {call for name in names.split() for call in calls_of(name)}
        allowed = allowed - calls if refuses else allowed | calls
    assert "open_by_handle_at" not in allowed
    assert {"prctl", "openat", "read"} <= allowed


def calls_of(name: str) -> set[str]:
    """The system calls that a word of SystemCallFilter= stands for; systemd's groups contain each other."""
    if not name.startswith("@"):
        return {name}
    code, said = run("systemd-analyze", "syscall-filter", name)
    assert code == 0, said
    words = [line.strip() for line in said.splitlines() if line.startswith("    ") and "#" not in line]
    return {call for word in words for call in calls_of(word)}


@needs_promtool
def test_prometheus_accepts_the_scrape_job() -> None:
    code, said = run("promtool", "check", "config", DEPLOY / "prometheus/scrape.yaml")
    assert code == 0, said
