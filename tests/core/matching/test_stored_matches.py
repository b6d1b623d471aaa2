"""Matches in the state file: what is written is read, by later versions too."""

from __future__ import annotations

import json

from exporter.core.matching.stored_matches import dump_match, load_match
from exporter.core.model import Job
from tests.support.matches import match

POD = Job(
    id="ml/train-0",
    kind="kubernetes",
    confidence="high",
    method="pid",
    pod_uid="3c1f0d5e",
    container="main",
    restart="2",
)
LATER = {"method", "raw_id", "step", "account", "name", "pod_uid", "container", "restart"}


def test_a_match_is_read_as_it_was_written() -> None:
    for one in (
        match("xid", source="kernel", claims=(POD, Job(id="7", kind="slurm", method="time")), named_job="pod 3c1f0d5e"),
        match("crash", job=POD, uid=1000),
        match("crash", job=None),
        match("crash", uid=0, seq=0, boot_seconds=0.0),
    ):
        assert load_match(json.loads(json.dumps(dump_match(one)))) == one


def test_a_job_that_only_its_path_names_is_written_as_earlier_versions_did() -> None:
    written = dump_match(match("crash", job=Job(id="7", kind="slurm", confidence="high")))
    assert not written["job"].keys() & LATER
    assert not written.keys() & {"claims", "uid"}
