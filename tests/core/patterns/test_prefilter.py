"""An engine with a database that was built before finds what one finds that builds its own."""

from __future__ import annotations

from unittest.mock import patch

import hyperscan
import pytest

from exporter.config import packs
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import SourceKind
from exporter.core.patterns.prefilter import HyperscanEngine, key_of
from exporter.core.patterns.required_literals import Gate

GATES = [Gate(b"GPU fault"), Gate(b"xid", ignore_case=True)]
BLOCK = b"gpu fault, GPU fault, XID 79, Xid"


def test_a_database_that_is_there_is_not_built() -> None:
    built = HyperscanEngine(GATES)
    databases = {key_of(GATES): built.serialized()}
    with patch.object(HyperscanEngine, "_built", side_effect=AssertionError("built again")):
        assert HyperscanEngine(GATES, databases).scan(BLOCK) == built.scan(BLOCK)


@pytest.mark.parametrize("other", [GATES[:1], GATES[::-1], [GATES[0], Gate(b"xid")]])
def test_other_gates_have_another_database(other: list[Gate]) -> None:
    databases = {key_of(GATES): HyperscanEngine(GATES).serialized()}
    assert HyperscanEngine(other, databases).scan(BLOCK) == HyperscanEngine(other).scan(BLOCK)


@pytest.mark.parametrize("at", [0, 4, 8, 16, 200, 300])
def test_a_database_of_another_version_or_processor_or_a_damaged_one_is_built_anew(at: int) -> None:
    serialized = bytearray(HyperscanEngine(GATES).serialized())
    serialized[at] ^= 0xFF
    with pytest.raises(hyperscan.error):
        hyperscan.loadb(bytes(serialized), hyperscan.HS_MODE_VECTORED)
    assert HyperscanEngine(GATES, {key_of(GATES): bytes(serialized)}).scan(BLOCK) == HyperscanEngine(GATES).scan(BLOCK)
    assert HyperscanEngine(GATES, {key_of(GATES): b""}).scan(BLOCK) == HyperscanEngine(GATES).scan(BLOCK)


@pytest.mark.parametrize("source", ["job", "kernel"])
def test_one_literal_of_three_bytes_makes_hyperscan_look_at_every_second_byte(source: SourceKind) -> None:
    """With 250 to 800 literals, none of them so short, English text takes it three times as long."""
    pipeline = Pipeline(packs.load())
    pace = b"\1\2\3"
    with patch("exporter.core.matching.pipeline.build") as build:
        pipeline.engine_for(source)
    gates = build.call_args[0][0]
    assert [gate.literal for gate in gates if len(gate.literal) < 4] == [pace]
    assert pipeline.matcher.tried_under([gates.index(Gate(pace))], source) == [], "it leads to no rule"
