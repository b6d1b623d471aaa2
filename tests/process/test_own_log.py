"""What the daemon's own log may not hold, whatever a file is called."""

from __future__ import annotations

import pytest

from exporter.process.own_log import start_logging

NAME = "a\nlevel=error\x1b]0;x\x07\x9b31m\r\u202e\u2028\0/home/ada\udcff"


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_no_name_of_a_file_begins_a_line_or_moves_a_cursor(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = start_logging("info", form)
    log.warning(f"{NAME} is a FIFO", path=NAME)
    told = capsys.readouterr().err.removesuffix("\n")
    assert told.isprintable()
    assert "ada" not in told
