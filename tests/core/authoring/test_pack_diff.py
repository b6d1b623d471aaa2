"""What a site's packs do to the built-in ones, as their author reads it."""

from __future__ import annotations

from exporter.core.authoring.pack_diff import against_builtin
from exporter.core.catalogue.loader import load

HEAD = "{{id: {}, title: {}, vendor: any, layer: host, severity: error, "
BUILT_IN = f"""\
pack: builtin
signatures:
  - {HEAD.format("gpu_fault", "a fault")}patterns: ['GPU fault'], examples: [GPU fault 1, 'test: GPU fault 2']}}
  - {HEAD.format("disk_fault", "a disk")}patterns: ['disk fault'], examples: [disk fault 1], near_misses: [x]}}
"""


def told(own: str) -> list[str]:
    return [str(change) for change in against_builtin(load([("own.yaml", own)], [("builtin.yaml", BUILT_IN)]))]


def signature(name: str, more: str) -> str:
    return f"pack: own\nsignatures:\n  - {HEAD.format(name, 'of our own')}{more}}}\n"


def test_an_own_signature_beside_the_built_in_ones_is_added_and_nothing_is_removed() -> None:
    assert told(signature("own_fault", "patterns: ['own fault'], examples: [own fault]")) == [
        "added    signature own_fault: of our own"
    ]


def test_a_replacement_is_reported_with_its_keys_and_with_what_it_no_longer_matches() -> None:
    own = "override: true, patterns: ['^GPU fault'], examples: [GPU fault 1, 'test: GPU fault 2']"
    assert told(signature("gpu_fault", own)) == [
        "replaced signature gpu_fault: title, patterns; 1 of its 2 built-in examples no longer holds"
    ]


def test_a_signature_that_an_own_echo_takes_lines_from_is_shadowed() -> None:
    echo = "pack: own\nechoes:\n  - {id: own_echo, title: a test, patterns: ['^test: ']}\n"
    assert told(echo) == [
        "added    echo own_echo: a test",
        "shadowed signature gpu_fault: 1 of its 2 built-in examples no longer holds; own_echo takes it",
    ]


def test_an_own_signature_on_lines_of_a_built_in_one_overlaps_unless_it_yields() -> None:
    own = "patterns: ['fault 1'], examples: [GPU fault 1]"
    assert told(signature("own_fault", own)) == [
        "added    signature own_fault: of our own",
        "overlaps signature own_fault: its examples also match the built-in gpu_fault; use `yields_to` if that one is to count",
    ]
    yielding = "patterns: ['own fault|GPU fault 1'], yields_to: [gpu_fault], examples: [own fault]"
    assert told(signature("own_fault", yielding)) == ["added    signature own_fault: of our own"]
