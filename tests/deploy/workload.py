"""A container that the chart has rendered, run as a process here: its files and folders are below a folder, its ports are free
ports of loopback. What the kubelet does is done for ConfigMaps, Secrets, and folders of the node.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.deploy.kubernetes import Object, objects, only
from tests.e2e.conftest import eventually, gpufault

PATHS = re.compile(r"(?<![\w./])/(?=(?:etc/gpufault|var/lib/gpufault|var/log|host)\b)")


def web_access(text: str) -> dict[str, str]:
    """The header of whoever has the password that the chart made."""
    data = {key: base64.b64decode(value) for key, value in only(text, "Secret", "gpu-gpufault-access")["data"].items()}
    token = base64.b64encode(data["username"] + b":" + data["password"]).decode()
    return {"Authorization": f"Basic {token}"}


class Workload:
    """A container of `text`, which is what Helm rendered. changes: texts to replace in files and arguments."""

    def __init__(
        self, text: str, kind: str, root: Path, container: str, changes: dict[str, str], **environment: str
    ) -> None:
        self.root = root
        self.log = root / f"{container}.log"
        self._text = text
        self._changes = changes
        self._environment = environment
        pod = only(text, kind)["spec"]["template"]["spec"]
        (self._container,) = [each for each in pod["containers"] if each["name"] == container]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in self._container["volumeMounts"]:
            self._mount(volumes[mount["name"]], mount)
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.headers: dict[str, str] = {}

    @property
    def command(self) -> list[str]:
        return [gpufault(), *(self._here(argument) for argument in self._container["args"])]

    def run(self) -> tuple[int, str]:
        """Run it to its end: exit code and output."""
        done = subprocess.run(
            self.command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._env()
        )
        return done.returncode, done.stdout

    def start(self) -> None:
        """Start it, and wait until it listens. A daemon also until it has found the logs that it begins at the end of."""
        written = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdout=log, env=self._env())

        def address() -> str | None:
            text = self.log.read_bytes()[written:].decode()
            assert self.process is not None
            assert self.process.poll() is None, text
            found = re.search(r"event=listening .*?(127\.0\.0\.1:\d+)", text)
            is_watching = "event=watching" in text or self._container["args"][0] != "run"
            return found[1] if found and is_watching else None

        self.address = eventually(address, seconds=60)

    def stop(self) -> None:
        """SIGTERM, as the kubelet sends it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body, with `headers`."""
        request = urllib.request.Request(f"http://{self.address}{path}", headers=self.headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, path: str) -> Object:
        found: Object = json.loads(self.ask(path)[1])
        return found

    def value(self, series: str) -> float | None:
        """The value of a series on /metrics."""
        lines = self.ask("/metrics")[1].splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{series} ")), None)

    def _env(self) -> dict[str, str]:
        return os.environ | self._environment

    def _here(self, text: str) -> str:
        for old, new in self._changes.items():
            text = text.replace(old, new)
        return PATHS.sub(f"{self.root}/", text)

    def _mount(self, volume: Object, mount: Object) -> None:
        path = self.root / mount["mountPath"].lstrip("/")
        if "configMap" in volume:
            data = only(self._text, "ConfigMap", volume["configMap"]["name"])["data"]
            files = {mount["subPath"]: data[mount["subPath"]]} if "subPath" in mount else data
            folder = path.parent if "subPath" in mount else path
            for name, content in files.items():
                self._write(folder / name, self._here(content) if "subPath" in mount else content)
        elif "secret" in volume:
            data = only(self._text, "Secret", volume["secret"]["secretName"])["data"]
            for item in volume["secret"]["items"]:
                self._write(path / item["path"], base64.b64decode(data[item["key"]]).decode())
        else:
            path.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def kept(text: str) -> list[str]:
    """What `helm uninstall` leaves in the cluster."""
    annotated = [item for item in objects(text) if item["metadata"].get("annotations")]
    return [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in annotated
        if item["metadata"]["annotations"].get("helm.sh/resource-policy") == "keep"
    ]
