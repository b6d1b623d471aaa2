"""`gpufault signatures check --profile`, as the author of a pack reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cli.main import main

PACK = """\
pack: mine
signatures:
  - id: my_stall
    title: A step stalled
    vendor: any
    layer: host
    severity: info
    patterns: ['^step \\d+ is late$', '\\w+.*? of .*? and .*? stalled$']
    examples: ['step 1 is late', 'step 1 of 2 and 3 stalled']
    near_misses: [{text: 'MANY stalled here', why: its middle can be read in many ways}]
"""


@pytest.mark.heavy
def test_a_slow_pattern_is_named_with_its_place_its_signature_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "mine.yaml"
    pack.write_text(PACK.replace("MANY", "of and " * 40))
    assert main(["signatures", "check", "--profile", str(pack)]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert " ".join(heading.split()) == "try, µs compile, ms pattern, and the literals that lead to it"
    assert [row.partition("my_stall")[2].strip() for row in rows[:2]] == [
        r"\w+.*? of .*? and .*? stalled$  ('stalled')",
        r"^step \d+ is late$  ('is late')",
    ]
    assert rows[2].endswith("what others take, the median")
    assert rows[3].startswith("the database of ")
    (told,) = [row for row in rows[4:] if "to try on a line" in row]
    assert told.startswith(f"{pack}:8:38: signatures[0].patterns[1]: my_stall takes ")
    assert " µs to try on a line, " in told
    assert told.endswith("; begin the pattern with ^ or a word, and bound or merge its repetitions (warning)")
    assert main(["signatures", "check", "--profile", "--strict", str(pack)]) == 2
