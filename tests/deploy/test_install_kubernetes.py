"""docs/install-kubernetes.md: its commands, settings and outputs are correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.kubernetes import CHART, ROOT, needs_helm, only, pods, rendered, run, template
from tests.support.programs import needs

pytestmark = pytest.mark.deploy

PAGE = (ROOT / "docs/install-kubernetes.md").read_text()
WRONG = "config.incidents.settle=15"


def commands(program: str) -> list[str]:
    """What the page types, lines that go on joined."""
    return re.findall(rf"^\$ ({program} .*)$", PAGE.replace("\\\n", " "), re.MULTILINE)


def refused(settings: list[str]) -> bool:
    return WRONG in settings or "service.enabled=false" in settings


@needs_helm
def test_every_setting_on_the_page_exists_in_the_chart() -> None:
    typed = [re.findall(r"--set ([\w.]+=[^\s`]+)", command) for command in commands("helm")]
    assert sum(refused(settings) for settings in typed) == 2
    inline = [[setting] for setting in re.findall(r"`--set ([\w.]+=[^\s`]+)`", PAGE)]
    assert len(inline) == 2
    for settings in [*typed, *inline]:
        code, _, error = template(*(part for setting in settings for part in ("--set", setting)))
        assert (code != 0) is refused(settings), error


@needs_helm
def test_values_on_the_page_are_accepted(tmp_path: Path) -> None:
    found = re.findall(r"^```yaml\n# values.yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(found) == 3
    for values in found:
        (tmp_path / "values.yaml").write_text(values)
        code, text, error = template("--values", tmp_path / "values.yaml")
        assert code == 0, error
        assert "/etc/gpufault/outputs/" in only(text, "ConfigMap", "gpu-gpufault-config")["data"]["config.yaml"]


@needs_helm
def test_each_secret_of_the_page_has_the_keys_that_the_chart_mounts(tmp_path: Path) -> None:
    made = {
        name: set(re.findall(r"--from-(?:literal|file)=([\w.]+)", options))
        for name, options in re.findall(r"create secret generic (\S+) (.*)", "\n".join(commands("kubectl")))
    }
    for values in re.findall(r"^```yaml\n# values.yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / "values.yaml").write_text(values)
        _, text, _ = template("--values", tmp_path / "values.yaml")
        volumes = only(text, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
        (outputs,) = [volume["projected"]["sources"] for volume in volumes if volume["name"] == "outputs"]
        for source in outputs:
            assert {item["key"] for item in source["secret"]["items"]} <= made[source["secret"]["name"]]


@needs("amtool")
def test_alertmanager_accepts_the_configuration_for_slack(tmp_path: Path) -> None:
    (values,) = re.findall(r"^```yaml\n# values of kube-prometheus-stack\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    config = yaml.safe_load(values)["alertmanager"]["config"]
    (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(config))
    code, said, error = run("amtool", "check-config", tmp_path / "alertmanager.yml")
    assert code == 0, said + error


@needs_helm
def test_the_error_on_the_page_is_the_error_of_helm() -> None:
    shown = re.findall(r"^Error: .*?(?=```)", PAGE, re.DOTALL | re.MULTILINE)
    for settings, text in zip(([WRONG], ["serviceMonitor.enabled=true", "service.enabled=false"]), shown, strict=True):
        code, _, error = template(*(part for setting in settings for part in ("--set", setting)))
        assert code != 0
        assert error.partition("\n\n")[0].strip() == text.strip()


@needs_helm
def test_the_table_of_folders_matches_the_mounts() -> None:
    ((_, pod),) = [found for found in pods(rendered("default")) if found[0].startswith("DaemonSet")]
    mounted = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    rows = re.findall(r"^\| (`/.*?`) \|", PAGE, re.MULTILINE)
    assert {path for row in rows for path in re.findall(r"`([^`]+)`", row)} == mounted


@needs("promtool")
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
