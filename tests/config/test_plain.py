"""The configuration without its models, and the process that makes it."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path

import pytest

from exporter.cli.load_in_subprocess import load as load_in_subprocess
from exporter.config.node import load
from exporter.config.plain import journal_folder, plain
from exporter.core.text.problems import InvalidInput

TEXT = """
state_dir: /s
sources:
  - {kind: files, name: x, paths: [/logs/*.log], job: {pattern: '(?P<job>\\d+)'}}
  - {kind: kmsg}
outputs: {webhook: {url: 'https://host/secret', headers: {Authorization: secret}}}
"""


def asked(config_file: Path) -> argparse.Namespace:
    return argparse.Namespace(config_file=str(config_file), state_dir=None)


def test_a_plain_configuration_has_the_values_of_its_models() -> None:
    config = load(TEXT, "c.yaml")
    values = pickle.loads(pickle.dumps(plain(config)))
    assert values == plain(config)
    files, kmsg = values.sources
    assert (files.kind, files.name, files.job.pattern, kmsg.kind) == ("files", "x", r"(?P<job>\d+)", "kmsg")
    assert values.incidents.settle == config.incidents.settle
    assert values.outputs.webhook.retry.first == 1.0
    assert journal_folder(values) == journal_folder(config) == Path("/s/journal")


def test_a_plain_configuration_differs_where_a_value_differs() -> None:
    assert plain(load(TEXT, "c.yaml")).outputs != plain(load(TEXT.replace("Author", "X-Author"), "c.yaml")).outputs


def test_a_plain_configuration_cannot_be_changed_and_shows_no_secret() -> None:
    values = plain(load(TEXT, "c.yaml"))
    with pytest.raises(AttributeError, match="settings do not change"):
        values.node = "other"  # type: ignore[misc]
    assert "https" not in repr(values.outputs.webhook)


def test_another_process_loads_configuration_and_packs(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"state_dir: {tmp_path}\nsignatures: {{disable: ['nv_xid_*']}}\n")
    settings, catalogue = load_in_subprocess(asked(config))
    assert settings.state_dir == tmp_path
    assert catalogue.signatures
    assert not [name for name in catalogue.signatures if name.startswith("nv_xid_")]


def test_another_process_tells_all_problems_with_their_places(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("node: ''\nsurces: []\n")
    with pytest.raises(InvalidInput) as refused:
        load_in_subprocess(asked(config))
    assert [(each.line, each.key) for each in refused.value.problems] == [(1, "node"), (2, "surces")]
    assert str(refused.value).startswith(f"{config}:1:1: node: ")


def test_another_process_tells_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        load_in_subprocess(asked(tmp_path / "none.yaml"))
    assert missing.value.filename == str(tmp_path / "none.yaml")
