"""The image as it runs: as nobody, on a read-only root, and with just what each securityProfile of the chart gives."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
import yaml

from exporter import __version__
from tests.deploy import containers
from tests.deploy.bare import Bare
from tests.deploy.containers import Container, running
from tests.deploy.image import COMMITTED, Builder, Image
from tests.deploy.kubernetes import ROOT, Object, needs_helm, only, template
from tests.e2e.conftest import eventually
from tests.support import handles
from tests.support.programs import needs, needs_root

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.nightly,
    needs_root,
    needs("buildah", "debootstrap", "runc", "apt-get"),
    pytest.mark.skipif(not containers.SECCOMP.exists(), reason=f"no {containers.SECCOMP}: package containers-common"),
]
needs_kernel_log = pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="no /dev/kmsg")

HOST = {"proc": Path("/proc"), "sys": Path("/sys"), "usr": Path("/usr"), "opt": Path("/opt")}
DAC_READ_SEARCH, SYSLOG = 1 << 2, 1 << 34  # capability.h
PYTHON = "/opt/gpufault/bin/python"
ASK = (PYTHON, "-I", "/opt/gpufault/ask.py")
NOBODY: Object = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory, debian: Bare) -> Iterator[Builder]:
    builder = Builder(tmp_path_factory.mktemp("buildah"))
    builder.base(debian)
    yield builder
    builder.remove()


@pytest.fixture(scope="module")
def image(builder: Builder) -> Image:
    return builder.build("localhost/gpufault")


def test_the_image_has_labels_and_a_bill_of_materials(image: Image) -> None:
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image.config["Labels"].items()}
    assert labels.items() >= {"title": "gpufault", "licenses": "Apache-2.0", "version": __version__}.items()
    assert {"description", "revision", "created", "base.name"} <= labels.keys()
    assert image.config["User"] == "65534:65534"
    bill = json.loads((image.root / "opt/gpufault/sbom.cdx.json").read_text())
    listed = {(normal(part["name"]), part["version"]) for part in bill["components"]}
    locked = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert bill["metadata"]["component"]["name"] == "gpufault"
    assert listed
    assert listed <= {(normal(name), version) for name, version in locked}
    installed = {
        path.name.partition("-")[0] for path in image.root.glob("opt/gpufault/lib/python3*/site-packages/*.dist-info")
    }
    assert len(installed) == len(listed) + 1  # and gpufault itself


def test_the_image_has_no_installer_and_no_writable_file(image: Image) -> None:
    ours = image.root / "opt/gpufault"
    assert [path for path in ours.rglob("*") if path.name in ("pip", "ensurepip", "uv")] == []
    writable = [
        path
        for path in (ours, *ours.rglob("*"))
        if not path.is_symlink() and (path.stat().st_uid == 65534 or path.stat().st_mode & 0o022)
    ]
    assert writable == []


def test_the_same_commit_on_the_same_base_gives_the_same_image(builder: Builder, image: Image) -> None:
    assert builder.build("localhost/gpufault-again").digest == image.digest
    assert image.root.joinpath("opt/gpufault/ask.py").stat().st_mtime == COMMITTED


def test_the_image_runs_unprivileged_on_a_read_only_root(image: Image, tmp_path: Path) -> None:
    state = folder(tmp_path / "state", owner=65534)
    pod: Object = {
        "name": "gpufault",
        "securityContext": NOBODY,
        "args": ["run", "--config.file=/etc/gpufault/config.yaml", "--web.listen-address=127.0.0.1:0"],
        "volumeMounts": [{"name": "state", "mountPath": "/var/lib/gpufault"}],
    }
    with running(tmp_path, image.root, image.config, {}, pod, {"state": state}) as container:
        address = listening(container)
        (info,) = [
            line for line in get(f"http://{address}/metrics").splitlines() if line.startswith("gpufault_build_info{")
        ]
        assert f'version="{__version__}"' in info
        assert container.execute(*ASK, f"{address}/-/healthy", f"{address}/metrics").returncode == 0
        nowhere = container.execute(*ASK, f"{address}/-/healthy", f"{address}/nowhere")
        assert (nowhere.returncode, nowhere.stderr) == (1, f"{address}/nowhere: 404 Not Found: Not Found\n")
        status = container.execute("cat", "/proc/1/status").stdout
        assert re.findall(r"^Cap\w+:\s+(\w+)$", status, re.MULTILINE) == ["0" * 16] * 5
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert "Read-only file system" in container.execute("touch", "/opt/gpufault/x").stderr
    assert container.process.returncode == 0  # SIGTERM
    assert {path.name for path in state.iterdir()} >= {"state.sqlite", "journal"}


def test_the_health_probe_works_with_tls_and_a_password(image: Image, tmp_path: Path) -> None:
    web = folder(tmp_path / "web", owner=65534)
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(web / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(web / "tls.crt")
    hashed = "$2y$04$" + "a" * 21 + "." + "a" * 31
    text = f"tls_server_config: {{cert_file: tls.crt, key_file: tls.key}}\nbasic_auth_users: {{scrape: {hashed}}}\n"
    (web / "web-config.yaml").write_text(text)
    for path in web.iterdir():
        os.chown(path, 65534, 65534)
    pod: Object = {
        "name": "gpufault",
        "securityContext": NOBODY,
        "args": ["run", "--web.listen-address=127.0.0.1:0", "--web.config.file=/web/web-config.yaml"],
        "volumeMounts": [
            {"name": "state", "mountPath": "/var/lib/gpufault"},
            {"name": "web", "mountPath": "/web", "readOnly": True},
        ],
    }
    volumes = {"state": folder(tmp_path / "state", owner=65534), "web": web}
    with running(tmp_path, image.root, image.config, {}, pod, volumes) as container:
        address = listening(container)
        asked = container.execute(*ASK, f"{address}/-/healthy")
        assert (asked.returncode, asked.stderr) == (0, "")
    # the log of a container that has ended still names the port, on which nobody listens now
    python = ROOT / "deploy/image/ask.py"
    gone = subprocess.run(
        ["python3", "-I", str(python), f"{address}/-/healthy"], capture_output=True, text=True, check=False
    )
    assert gone.returncode == 1
    assert "Connection refused" in gone.stderr


@needs_helm
@needs_kernel_log
@pytest.mark.parametrize("profile", ["restricted-root", "nonroot-filecaps", "privileged"])
def test_a_profile_grants_only_what_the_daemon_needs(profile: str, image: Image, tmp_path: Path) -> None:
    pod, container_spec, volumes = of_the_chart(tmp_path, f"securityProfile={profile}")
    private = folder(tmp_path / "log/pods/job_train-0_4567/train")
    (private / "0.log").touch(mode=0o600)
    for init in pod.get("initContainers", []):
        with running(tmp_path, image.root, image.config, pod, init, volumes) as done:
            assert done.process.wait(timeout=30) == 0, done.said()
    with running(tmp_path, image.root, image.config, pod, container_spec, volumes) as container:
        address = listening(container)
        eventually(lambda: ready(address) or None)
        say(private / "0.log", f"gpufault inject: test line {secrets.token_hex(8)}")
        eventually(lambda: counted(address, "job") == 1.0)
        before = counted(address, "kernel")  # what was in the ring
        Path("/dev/kmsg").write_text(f"gpufault inject: test line {secrets.token_hex(8)}\n")
        eventually(lambda: counted(address, "kernel") > before)
        assert 'os="' in get(f"http://{address}/metrics")  # a fact of the node, from /host
        written = container.execute(
            "touch", "/x", "/var/log/x", "/host/proc/sys/kernel/core_pattern", "/host/sys/fs/cgroup/x"
        )
        assert written.stderr.count("Read-only file system") + written.stderr.count("Permission denied") == 4, written
        allowed = re.search(r"^CapEff:\s+(\w+)$", container.execute("cat", "/proc/1/status").stdout, re.MULTILINE)
        assert allowed
        if profile == "privileged":
            assert "kmsg" in container.execute("ls", "-l", "/proc/1/fd").stdout
        else:
            assert int(allowed[1], 16) == SYSLOG | (DAC_READ_SEARCH if profile == "nonroot-filecaps" else 0)
            assert container.execute("ls", "/dev/kmsg").returncode != 0
        if profile != "nonroot-filecaps":  # there, nobody may look into the daemon: see NOTES.txt
            asked = ("gpufault", "inject", "--file", "/proc/1/fd/1", "--url", f"http://{address}/metrics")
            injected = container.execute(*asked)
            assert injected.returncode == 0, injected
    assert container.process.returncode == 0
    owner = 65534 if profile == "nonroot-filecaps" else 0
    assert {path.stat().st_uid for path in (tmp_path / "state").rglob("*")} == {owner}


@needs_helm
@pytest.mark.parametrize(
    ("options", "reads_users_logs", "others_read"),
    [
        ((), False, "EPERM"),
        (("userLogs.enabled=true",), True, "root:$6$hash"),
        (
            ("userLogs.enabled=true", "seccompProfile.type=Localhost", "seccompProfile.localhostProfile=gpufault.json"),
            True,
            "EPERM",
        ),
    ],
    ids=["default", "user logs", "user logs and the shipped profile"],
)
def test_the_daemon_cannot_open_node_files_by_handle(
    options: tuple[str, ...], reads_users_logs: bool, others_read: str, image: Image, tmp_path: Path
) -> None:
    """others_read: what a program gets that did not come from the daemon, such as one of `kubectl exec`."""
    pod, container_spec, volumes = of_the_chart(tmp_path, *options)
    secret = folder(tmp_path / "etc") / "shadow"  # on the disk of /var/log, and in no mount
    secret.write_text("root:$6$hash")
    shutil.copy(handles.__file__, volumes["var-log"] / "handles.py")
    attack = [PYTHON, "-I", "/var/log/handles.py", handles.handle_of(secret), "/var/log"]
    file = volumes["config"] / "config.yaml"
    config = yaml.safe_load(file.read_text())
    config["facts"]["commands"] = {"stolen": attack}
    file.write_text(json.dumps(config))
    log = folder(tmp_path / "log/pods/job_train-0_4567/train") / "0.log"
    log.touch(mode=0o600)
    os.chown(log, 1000, 1000)
    with running(tmp_path, image.root, image.config, pod, container_spec, volumes) as container:
        address = listening(container)
        assert 'gpufault_node_fact{fact="stolen",value="EPERM"} 1.0' in get(f"http://{address}/metrics")
        assert container.execute(*attack).stdout == others_read + "\n"
        say(log, f"gpufault inject: test line {secrets.token_hex(8)}")
        if reads_users_logs:
            eventually(lambda: counted(address, "job") == 1.0)
        else:
            unread = 'gpufault_source_dropped_total{reason="unreadable",source="pods"} 1.0'
            eventually(lambda: unread in get(f"http://{address}/metrics"))


def of_the_chart(tmp_path: Path, *options: str) -> tuple[Object, Object, dict[str, Path]]:
    """The daemon's pod and container as the chart has them with some values, and the volumes that it asks for."""
    code, text, error = template(*(part for option in options for part in ("--set", option)))
    assert code == 0, error
    pod = only(text, "DaemonSet")["spec"]["template"]["spec"]
    (container_spec,) = pod["containers"]
    container_spec["args"] = [arg.replace("address=:9873", "address=127.0.0.1:0") for arg in container_spec["args"]]
    config = folder(tmp_path / "config")
    (config / "config.yaml").write_text(only(text, "ConfigMap", "gpu-gpufault-config")["data"]["config.yaml"])
    volumes = {
        "config": config,
        "state": folder(tmp_path / "state"),
        "tmp": folder(tmp_path / "tmp"),
        "var-log": folder(tmp_path / "log"),
    }
    volumes["tmp"].chmod(0o1777)
    volumes |= {
        v["name"]: HOST[v["hostPath"]["path"].strip("/")] for v in pod["volumes"] if v["name"].startswith("facts-")
    }
    return pod, container_spec, volumes


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def folder(path: Path, owner: int = 0) -> Path:
    path.mkdir(parents=True)
    os.chown(path, owner, owner)
    return path


def say(log: Path, line: str) -> None:
    """As the runtime writes what a container prints."""
    with log.open("a") as file:
        file.write(f"2026-01-01T00:00:00.000000000Z stdout F {line}\n")


def listening(container: Container) -> str:
    def address() -> str | None:
        assert container.process.poll() is None, container.said()
        found = re.search(r"event=listening .*?(127\.0\.0\.1:\d+)", container.said())
        return found[1] if found else None

    return eventually(address)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def ready(address: str) -> bool:
    try:
        return "is ready" in get(f"http://{address}/-/ready")
    except urllib.error.HTTPError:
        return False


def counted(address: str, source: str) -> float:
    wanted = f'gpufault_lines_matched_total{{signature="gpufault_test_line",source="{source}"}} '
    lines = [line for line in get(f"http://{address}/metrics").splitlines() if line.startswith(wanted)]
    return float(lines[0].removeprefix(wanted)) if lines else 0.0
