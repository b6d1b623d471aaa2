"""Writes exporter/config/ordinary_words.txt: the frequent words of plain English about programs.

They are counted in texts, comments and messages of Python's standard library, whose licence allows it.
`python benchmarks/ordinary_words.py`
"""

from __future__ import annotations

import ast
import re
import sysconfig
import textwrap
from collections import Counter
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "exporter/config/ordinary_words.txt"
BANDS = (2400, 1200, 600, 300, 150)  # of a million words; a band has the words of at least so many
OTHERS = {"test", "tests", "site-packages", "idlelib", "lib2to3", "turtledemo", "encodings"}
# A word by itself, not a part of a name, a path or a call.
WORD = re.compile(r"(?<![\w.'\"`/<-])[A-Za-z]+(?![\w('\"`/>]|\.\w)")


def counted(root: Path) -> Counter[str]:
    words: Counter[str] = Counter()
    for path in root.rglob("*.py"):
        if OTHERS.isdisjoint(path.relative_to(root).parts):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                    words.update(WORD.findall(node.value))
            for comment in re.findall(r"^\s*# (.*)", text, re.MULTILINE):
                words.update(WORD.findall(comment))
    return words


def table(words: Counter[str]) -> str:
    """A line begins with the band of its words."""
    total = words.total()
    bands = {word: next((band for band in BANDS if count * 1e6 >= band * total), 0) for word, count in words.items()}
    lines = [
        f"{band} {line}\n"
        for band in BANDS
        for line in textwrap.wrap(
            " ".join(sorted(word for word in words if bands[word] == band and len(word) > 3)), 120
        )
    ]
    return "".join(lines)


if __name__ == "__main__":
    TARGET.write_text(table(counted(Path(sysconfig.get_path("stdlib")))), encoding="utf-8")
