"""How deep calls may nest. Imports little, so that a small scan starts fast."""

import sys

RECURSION_LIMIT = 4096  # PATH_MAX allows 2,047 nested folders; the rest is for what walks them


def allow_deepest_folders() -> None:
    """Raise Python's recursion limit, so that watchdog, glob and os.walk (up to 3.11) reach the deepest folder.

    One folder beyond the default of 1,000 calls would end watchdog's only thread, or a whole scan.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
