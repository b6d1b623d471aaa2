"""Documents quote errors: a scan that has to find out itself what a file is names them and reports no incident."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from exporter.cli.main import main
from exporter.scan.documents import document_of
from exporter.scan.plan import Task, Unread, plan

ERROR = "RuntimeError: HIP error: invalid argument"
DOCUMENTS = {
    "Markdown with a fence": f"# FAQ\n\n## Crashes\n\nWhen a run ends with\n\n```\n{ERROR}\n```\n\nlook at its sizes.\n",
    "Markdown with code in prose": f"## Trouble\n\n### Arguments\n\n    {ERROR}\n\nLower `--batch-size` then.\n",
    "Markdown with a small title": f"# fail\n\n## Usage\n\nSee [the site](docs/a.md):\n\n```\n{ERROR}\n```\n",
    "reStructuredText": f"Wrong arguments\n---------------\n\nA program ends with::\n\n    {ERROR}\n\n",
    "a directive": f".. code-block:: python\n\n    >>> fail()\n    Traceback (most recent call last):\n    {ERROR}\n",
    "a manual page": f"NAME\n       hipfail - fail\n\nDESCRIPTION\n       It prints\n       {ERROR}\n",
    "a manual page's source": f'.\\" A comment\n.TH FAIL 1\n.SH NAME\nfail \\- fail\n.PP\nIt prints\n{ERROR}\n',
    "git log": f"commit 4ad5d2c0f1\nAuthor: A B <a@example.org>\n\n    check sizes\n\n        {ERROR}\n",
    "a patch": f"diff --git a/fail.py b/fail.py\nindex 12..34 100644\n {ERROR}\n",
    "a doctest's report": f"Trying:\n    fail()\nExpecting:\n    Traceback (most recent call last):\n    {ERROR}\nok\n",
    "a session of Python": f'Python 3.12.3 (main) [GCC 13.2.0] on linux\nType "help"\n>>> import fail\n>>> fail()\n{ERROR}\n',
    "a session of IPython": f"In [1]: import fail\n\nIn [2]: fail()\n{ERROR}\n",
    "with the ends of lines of Windows": f"# FAQ\r\n\r\n## Crashes\r\n\r\n```\r\n{ERROR}\r\n```\r\n",
}
LOGS = {
    "a traceback": f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n{ERROR}\n',
    "comments that a program prints": f"# Loading input files...\n# Creating System\n{ERROR}\n",
    "a comment and a heading": f"# settings of this run\n## model\nlr 0.1\n{ERROR}\n",
    "a banner": f"Job 48213 on n1\n================================\n{ERROR}\n",
    "a banner as wide as its title": f"Start of job\n============\n{ERROR}\n",
    "a heading, and a stamp below it": f"# Train\n2026-06-01 10:00:00 ## Epoch 1\n2026-06-01 10:00:01 {ERROR}\n",
    "one heading and a list": f"# Train\n- batch 12\n- lr 0.1\n{ERROR}\n",
    "prompts that a program's input leaves": f"Python 3.12.3 (main) [GCC 13.2.0] on linux\n>>> >>> {ERROR}\n",
    "levels": f"INFO:root:# Model\nINFO:root:## Layers `conv1`\n{ERROR}\n",
    "git log before the job's own lines": f"commit 4ad5d2c0f1\nAuthor: A B <a@example.org>\n\n    check\n\nstep 1\n{ERROR}\n",
    "a command's own diff, later": f"make: Entering directory\ndiff --git a/x b/x\n{ERROR}\n",
}


def planned(tmp_path: Path, text: str, source: Literal["job", "auto"] = "auto") -> Task | Unread:
    path = tmp_path / "slurm-1.out"
    path.write_bytes(text.encode())
    return plan(str(path), source)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_is_known_by_its_first_lines(kind: str, tmp_path: Path) -> None:
    assert isinstance(planned(tmp_path, DOCUMENTS[kind]), Unread)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_who_says_that_it_is_a_log_has_it_read(kind: str, tmp_path: Path) -> None:
    assert isinstance(planned(tmp_path, DOCUMENTS[kind], "job"), Task)


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_that_looks_a_little_like_a_document_is_read(kind: str, tmp_path: Path) -> None:
    assert isinstance(planned(tmp_path, LOGS[kind]), Task)


def test_a_scan_names_a_document_and_finds_nothing_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slurm-1.out"
    path.write_text(DOCUMENTS["reStructuredText"])
    assert main(["scan", "--facts", "none", "--no-progress", str(path)]) == 0
    told = capsys.readouterr()
    assert f"{path}: not read: looks like reStructuredText, not a log; --source job reads it anyway" in told.err
    assert "could not be read" not in told.out + told.err


def test_long_lines_of_brackets_cost_no_time() -> None:
    assert document_of([b"# A", b"[" * 60_000, b"`" * 60_000, b"*" * 60_000]) == ""


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("NVRM: GPU at PCI:0000:41:00: GPU-1\nNVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n", "kernel"),
        ("[i915] *ERROR* Failed to reset GuC, ret = -110\n", "kernel"),
        ("step 1\nstep 2\nNVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n", "job"),  # a job may print it
    ],
)
def test_messages_of_drivers_without_a_time_are_the_kernels_where_most_lines_are(
    tmp_path: Path, text: str, source: str
) -> None:
    task = planned(tmp_path, text)
    assert isinstance(task, Task)
    assert task.source == source
