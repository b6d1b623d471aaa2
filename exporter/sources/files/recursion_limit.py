"""Folders in folders in folders: how deep a job may make them, and who follows by calling himself."""

from __future__ import annotations

import sys

CALLS = 4096  # PATH_MAX allows 2,047 folders within each other; the rest is for what walks them


def allow_the_deepest_folders() -> None:
    """Let os.walk() (up to Python 3.11), glob and whoever else calls itself for each folder come to the deepest one.

    Python's own bound is 1,000 calls. One folder deeper than that would end watchdog's only thread, or a whole scan.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), CALLS))
