"""docs/install-kubernetes.md: its commands, settings and outputs are correct."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.kubernetes import CHART, KUSTOMIZE, ROOT, needs_helm, only, pods, rendered, run, template

pytestmark = pytest.mark.deploy

PAGE = (ROOT / "docs/install-kubernetes.md").read_text()
WRONG = "config.incidents.settle=15"


@needs_helm
def test_every_setting_on_the_page_exists_in_the_chart() -> None:
    settings = re.findall(r"--set ([\w.]+=[^\s`]+)", PAGE)
    assert WRONG in settings
    options = [part for setting in settings if setting != WRONG for part in ("--set", setting)]
    code, text, error = template(*options)
    assert code == 0, error
    assert only(text, "Deployment")["metadata"]["name"] == "gpu-gpufault-fleet"
    assert only(text, "PodMonitor")


@needs_helm
def test_the_error_on_the_page_is_the_error_of_helm() -> None:
    (shown,) = re.findall(r"^Error: values.*?(?=```)", PAGE, re.DOTALL | re.MULTILINE)
    code, _, error = template("--set", WRONG)
    assert code != 0
    assert error.strip() == shown.strip()


@needs_helm
def test_the_table_of_folders_matches_the_mounts() -> None:
    ((_, pod),) = [found for found in pods(rendered("default")) if found[0].startswith("DaemonSet")]
    mounted = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    rows = re.findall(r"^\| (`/.*?`) \|", PAGE, re.MULTILINE)
    assert {path for row in rows for path in re.findall(r"`([^`]+)`", row)} == mounted


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool")
def test_the_scrape_job_of_the_page_is_valid(tmp_path: Path) -> None:
    (job,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE, re.DOTALL)
    # Debian builds Prometheus without discovery in Kubernetes: another one takes its place
    there, count = re.subn(
        r"kubernetes_sd_configs:\n      - role: pod\n.*", "static_configs: [{targets: [pod:9873]}]", job
    )
    assert count == 1
    (tmp_path / "prometheus.yml").write_text(there)
    code, said, error = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert code == 0, said + error


def test_files_named_on_the_page_exist() -> None:
    assert "values.schema.json" in {path.name for path in CHART.iterdir()}
    for path in re.findall(r"\bdeploy/[\w/-]+(?:\.\w+)*|`ci/[\w-]+\.yaml`", PAGE):
        file = CHART / path.strip("`") if path.startswith("`") else ROOT / path
        assert file.exists(), path
    for overlay in re.findall(r"`(overlays/[\w-]+)`", PAGE):
        assert (KUSTOMIZE / overlay).is_dir(), overlay
