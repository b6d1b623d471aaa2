"""The configuration: what it says when it is silent, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.config.node import Config, FilesConfig, KmsgConfig, load
from exporter.config.plain import journal_folder
from exporter.core.text.problems import InvalidInput


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        load(text, "c.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_no_file_that_is_checked_moves_a_cursor() -> None:
    (told,) = problems('"k\\e[2J\\u202e\\u009b": 1')
    assert told.startswith(r"c.yaml:1:1: k\x1b[2J\u202e\x9b: no such key here; use facts, incidents, jobs, ")


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "null"])
def test_an_empty_file_is_the_defaults(text: str) -> None:
    config = load(text, "c.yaml")
    assert config == Config()
    assert config.sources == [KmsgConfig(kind="kmsg")]
    assert journal_folder(config) == Path("/var/lib/gpufault/journal")


def test_the_file_of_the_contract_is_read() -> None:
    config = load(
        r"""
node: auto
state_dir: /var/lib/gpufault
sources:
  - kind: files
    paths: ["/var/log/jobs/**/*.log", "/scratch/*/slurm-*.out"]
    exclude: ["*.gz"]
    format: auto
    start: end
    allow_roots: []
    job: {pattern: '/job_(?P<job>\d+)/'}
  - kind: kmsg
  - kind: journald
    units: ["slurmstepd*"]
incidents: {window: 60s, settle: 15s, late_after: 1h}
signatures: {packs: [builtin], dirs: [/etc/gpufault/signatures.d], disable: [], engine: auto}
facts: {interval: 5m, extra: {rack: r12}, commands: {}}
journal: {dir: /var/lib/gpufault/journal, max_bytes: 256MiB, excerpt_lines: 10, redact: true}
limits: {line_bytes: 1MiB, open_files: 1024, label_values: 200}
outputs: {otlp: null, webhook: null, textfile: null}
""",
        "c.yaml",
    )
    assert [source.kind for source in config.sources] == ["files", "kmsg", "journald"]
    assert (config.incidents.window, config.incidents.late_after, config.facts.interval) == (60.0, 3600.0, 300.0)
    assert (config.journal.max_bytes, config.limits.line_bytes) == (256 << 20, 1 << 20)
    assert config.facts.extra == {"rack": "r12"}


def test_every_error_is_told_at_its_place_all_at_once() -> None:
    text = """\
nodes: gpu-7
state_dir: relative
sources:
  - kind: files
    path: [/logs/*.log]
  - {kind: kmesg}
  - kind: journald
    units: []
incidents:
  window: 60
  settle: -1s
limits: {line_bytes: 1KiB, open_files: many}
outputs: {otlp: http://collector}
"""
    told = problems(text)
    assert [line.split(" ")[:2] for line in told] == [
        ["c.yaml:1:1:", "nodes:"],
        ["c.yaml:2:1:", "state_dir:"],
        ["c.yaml:5:5:", "sources[0].path:"],
        ["c.yaml:6:5:", "sources[1]:"],
        ["c.yaml:8:5:", "sources[2].units:"],
        ["c.yaml:10:3:", "incidents.window:"],
        ["c.yaml:11:3:", "incidents.settle:"],
        ["c.yaml:12:10:", "limits.line_bytes:"],
        ["c.yaml:12:28:", "limits.open_files:"],
        ["c.yaml:13:11:", "outputs.otlp:"],
    ]
    assert told[0].endswith("no such key here; did you mean node?")
    assert told[2].endswith("no such key here; did you mean paths?")
    assert told[3].endswith("kind must be files, kmsg or journald, not 'kmesg'; did you mean kmsg?")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "sources:\n  - kind: files\n    paths: /l/*.log\n",
            '3:5: sources[0].paths: must be a list; write ["/l/*.log"]',
        ),
        ("facts: {extra: {rack: 12}}", "1:17: facts.extra.rack: must be text; write '12' in quotes"),
        ("facts: {extra: {spare: true}}", "1:17: facts.extra.spare: must be text; write 'true' in quotes"),
        ("facts: {extra: {rack: }}", "1:17: facts.extra.rack: has no value; write one, or remove the key"),
        ("facts: {extra: [rack]}", "1:9: facts.extra: must map names to values; write NAME: VALUE, a line each"),
        ("journal: {redact: yes}", "1:11: journal.redact: must be true or false, not 'yes'"),
        ("limits: {open_files: many}", "1:10: limits.open_files: must be a whole number, not 'many'"),
        ("sources: kmsg", '1:1: sources: must be a list; write ["kmsg"]'),
        ("sources: []", "1:1: sources: is empty; add at least one entry"),
        ("sources: [{kind: kmsg, paths: [/x]}]", "1:24: sources[0].paths: no such key here; only kind files has it"),
        ("sources: [{kind: kmsg, pth: /x}]", "1:24: sources[0].pth: no such key here; did you mean path?"),
        ("signatures: {engine: pyhton}", "must be auto, hyperscan or python, not 'pyhton'; did you mean python?"),
        ("limits: {open_files: 7}", "1:10: limits.open_files: must be at least 8, not 7"),
        ("limits: {open_files: [7]}", "1:10: limits.open_files: must be a whole number, not a list"),
        ("limits: {line_bytes: 1GiB}", "1:10: limits.line_bytes: must be at most 16777216, not "),
        ("facts: {extra: {rack: [a]}}", "1:17: facts.extra.rack: must be text, not a list"),
        ("incidents: {settle: }", "1:13: incidents.settle: has no value; write one, or remove the key"),
        ("incidents: {settle: [5s]}", "1:13: incidents.settle: invalid duration a list; use a number and a unit"),
        ("- node: x", "1:1: must map keys to values; write KEY: VALUE"),
        ("facts: 12", "1:1: facts: has keys of its own; write them below it"),
        ("\tnode: x", "1:1: not YAML: found character that cannot start any token; indent with spaces, not tabs"),
        ('node: "\\d"', "1:8: not YAML: found unknown escape character; write patterns in single quotes"),
        ("node: [a", "not YAML: did not find expected ',' or ']'; close the list with ]"),
        ("node: {a: b", "not YAML: did not find expected ',' or '}'; close the mapping with }"),
        ('node: "a', "not YAML: found unexpected end of stream; close the quoted text"),
        ("node: a: b", "not YAML: mapping values are not allowed in this context; indent as the key above"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(text: str, told: str) -> None:
    (problem,) = problems(text)
    assert told in problem


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15.0), ("1.5m", 90.0), ("250ms", 0.25), ("1h", 3600.0), ("2d", 172800.0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert load(f"incidents: {{settle: {text}}}", "c.yaml").incidents.settle == seconds


@pytest.mark.parametrize("text", ["15", "s", "15 s", "0s", "-1s", "1e3s", "true", "[]", "9" * 400 + "d", "1_000s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    (problem,) = problems(f"incidents: {{settle: {text}}}")
    assert problem.startswith("c.yaml:1:13: incidents.settle: ")


@pytest.mark.parametrize(("text", "size"), [("65536", 65536), ("65536B", 65536), ("64KiB", 65536), ("2MiB", 2 << 20)])
def test_a_size_is_in_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert load(f"limits: {{line_bytes: {text}}}", "c.yaml").limits.line_bytes == size


@pytest.mark.parametrize("text", ["1MB", "1.5MiB", "-1", "1GiB", "100", "9" * 5000])  # the last three out of bounds
def test_what_is_no_size_for_a_line_is_refused(text: str) -> None:
    (problem,) = problems(f"limits: {{line_bytes: {text}}}")
    assert problem.startswith("c.yaml:1:10: limits.line_bytes: ")


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"/job_(\d+)/", "missing group (?P<job>…); add one for the job's id"),
        ("(?P<job>", "not in the common syntax of re and regex: "),
        ("(?P<job>a{99999999999})", "not in the common syntax of re and regex: "),
        ("(?P<job>a{99999999})", "written out, its repeats are 99999999 characters, over 20000; repeat less"),
        ("(?P<job>[[:digit:]]+)", "not in the common syntax of re and regex: "),
        ("(?:" * 2000 + "(?P<job>a)" + ")" * 2000, "nests groups 2001 deep, over 50"),
    ],
)
def test_a_job_pattern_that_cannot_name_a_job_is_refused(pattern: str, what: str) -> None:
    (problem,) = problems(f"sources:\n  - kind: files\n    paths: [/x]\n    job: {{pattern: '{pattern}'}}\n")
    assert problem.startswith(f"c.yaml:4:11: sources[0].job.pattern: {what}")


def test_a_key_that_is_given_twice_does_not_hide_other_errors() -> None:
    text = "node: a\nnode: b\nfacts: {extra: {rack: !!str 7, row: 7}}\nlimits: {open_files: 7}\n"
    assert [each.split(": ")[:2] for each in problems(text)] == [
        ["c.yaml:2:1", "node"],
        ["c.yaml:3:23", "facts.extra.rack"],
        ["c.yaml:3:32", "facts.extra.row"],
        ["c.yaml:4:10", "limits.open_files"],
    ]


def test_two_sources_need_two_names() -> None:
    files = "  - {kind: files, paths: [/x]}\n"
    assert problems(f"sources:\n{files}{files}") == [
        "c.yaml:3:5: sources[1]: a second source 'files'; give each files source a name of its own"
    ]
    assert problems("sources: [{kind: kmsg}, {kind: kmsg}]")[0].startswith(
        "c.yaml:1:25: sources[1]: a second source 'kmsg"
    )
    config = load(
        f"sources:\n{files}  - {{kind: files, name: more, paths: [/y]}}\n  - {{kind: kmsg, path: /z}}\n  - {{kind: kmsg}}\n",
        "c.yaml",
    )
    assert [source.name for source in config.sources if isinstance(source, FilesConfig)] == ["files", "more"]


def test_a_command_is_a_list_with_a_program() -> None:
    assert problems("facts: {commands: {rack: []}}")[0].startswith("c.yaml:1:20: facts.commands.rack: ")
    assert problems("facts: {commands: {rack: cat /etc/rack}}")[0].startswith("c.yaml:1:20: facts.commands.rack: ")


def test_a_fact_of_the_site_is_text() -> None:
    assert problems("facts: {extra: {rack: 12}}")[0].startswith("c.yaml:1:17: facts.extra.rack: ")
    assert load("facts: {extra: {rack: 012}}", "c.yaml").facts.extra == {"rack": "012"}


@pytest.mark.parametrize("text", ["[]", "7", "text"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    assert len(problems(text)) == 1
