"""deploy/kubernetes/report-cronjob.yaml: valid for the API, with flags that the command has, and unprivileged."""

from __future__ import annotations

import pytest
import yaml

from exporter import __version__
from tests.deploy.kubernetes import NEWEST, ROOT, violations
from tests.docs.commands import understood

TEXT = (ROOT / "deploy/kubernetes/report-cronjob.yaml").read_text(encoding="utf-8")
POD = yaml.safe_load(TEXT)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.mark.deploy
@pytest.mark.parametrize("version", ["1.27", NEWEST])  # timeZone is stable from 1.27 on
def test_the_object_is_valid_for_the_api(version: str) -> None:
    assert violations(TEXT, version) == []


def test_the_command_is_valid_and_of_this_version() -> None:
    assert understood(["gpufault", *CONTAINER["args"]])
    assert CONTAINER["image"] == f"gpufault:{__version__}"


def test_it_has_no_rights_and_mounts_what_it_reads() -> None:
    assert POD["securityContext"]["runAsNonRoot"]
    assert CONTAINER["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = [mount["mountPath"] for mount in CONTAINER["volumeMounts"]]
    files = [arg.partition("=")[2] for arg in CONTAINER["args"] if arg.partition("=")[0].endswith("-file")]
    assert files
    assert all(any(file.startswith(f"{mount}/") for mount in mounts) for file in files)
