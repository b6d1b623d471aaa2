"""A path that can match no log is reported wherever somebody looks: `--config.check`, /-/ready, doctor, inject."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.cli.main import main
from exporter.core.decoding.jobs import no_job
from exporter.sources.files.discovery import FilesSettings, Globs
from exporter.sources.files.source import FilesSource

MISTAKES = [
    ("{folder}", "{folder} is a folder; write {folder}/**/*.log, or {folder}/** for all of its files"),
    ("{folder}/", "{folder}/ is a folder; write {folder}/**/*.log, or {folder}/** for all of its files"),
    ("{folder}/*.gz", "{folder}/*.gz matches only logs that exclude names, or that an earlier source reads"),
    (
        "{folder}/{{a,b}}/*.log",
        "{folder}/{{a,b}}/*.log has braces, which stand for themselves; write one path for each alternative",
    ),
    ("{folder}/a.txt/*.log", "{folder}/a.txt/*.log cannot match: {folder}/a.txt is not a folder"),
]
FINE = [
    "{folder}/*.log",
    "{folder}/**",
    "{folder}/later/*.log",
    "{folder}/a.txt",
    "{folder}/later.log",
    "{folder}/[ab].log",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/a.txt").touch()
    return tmp_path / "jobs"


def source_of(*paths: str) -> FilesSource:
    settings = FilesSettings(paths=paths, exclude=("*.gz",))
    return FilesSource(
        "files", settings, stored={}, first_start=True, job_of=no_job, log=lambda _: None, wake=lambda: None
    )


def config_of(folder: Path, *paths: str) -> str:
    file = folder.parent / "c.yaml"
    state = {"state_dir": str(folder.parent / "state"), "sources": [{"kind": "files", "paths": list(paths)}]}
    file.write_text(json.dumps(state))
    return str(file)


@pytest.mark.parametrize(("pattern", "told"), MISTAKES)
def test_a_path_that_can_match_no_log_is_reported_everywhere(
    pattern: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern, told = pattern.format(folder=folder), told.format(folder=folder)
    source = source_of(pattern)
    try:
        list(source.poll(0.0))
        assert (source.stats.up, source.stats.down_reason) == (False, told)
    finally:
        source.close()
    config = config_of(folder, pattern)
    assert main(["run", "--config.check", "--config.file", config]) == 0
    assert f"note: source files: {told}\n" in capsys.readouterr().err
    assert main(["doctor", "--config.file", config]) == 1
    assert told in capsys.readouterr().out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporter.cli.inject._count", lambda *_: 0.0)
        assert main(["inject", "--config.file", config, "--timeout=0"]) == 3
    assert capsys.readouterr().err == (
        f"gpufault: {told}; no path of a `files` source has a folder to write to; give --file or --kmsg\n"
    )


@pytest.mark.parametrize("pattern", FINE)
def test_a_path_that_may_match_a_log_is_not_a_mistake(pattern: str, folder: Path) -> None:
    assert Globs([pattern.format(folder=folder)], ["*.gz"]).mistakes() == {}


def test_one_wrong_path_of_two_leaves_the_source_up_and_is_still_reported(folder: Path) -> None:
    source = source_of(str(folder), f"{folder}/*.log")
    try:
        list(source.poll(0.0))
        assert source.stats.up
        assert source.stats.down_reason.startswith(f"{folder} is a folder; ")
    finally:
        source.close()


def test_what_an_earlier_source_reads_is_a_mistake_of_the_later_one(folder: Path) -> None:
    assert Globs([f"{folder}/*.log"], earlier=[Globs([f"{folder}/*"])]).mistakes()
    assert not Globs([f"{folder}/*"], earlier=[Globs([f"{folder}/*.log"])]).mistakes()


def test_a_log_that_is_named_and_missing_is_reported_by_the_check(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["run", "--config.check", "--config.file", config_of(folder, f"{folder}/later.log", f"{folder}/a/*")]) == 0
    )
    notes = capsys.readouterr().err
    assert f"note: {folder}/later.log does not exist here" in notes
    assert f"note: {folder}/a does not exist here" in notes
