"""Service accounts: users that write the logs of others, so that a log's owner does not tell whose job it is."""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Iterable

# Container runtimes and log collectors write as root, some schedulers as a user of their own, root over NFS as nobody.
SERVICE_ACCOUNTS = ("root", "slurm", "nobody")


def uids_of(accounts: Iterable[str]) -> frozenset[int]:
    """The user ids of accounts, given by name or number. A name that this machine does not know owns no file here."""
    found = set()
    for account in accounts:
        with contextlib.suppress(KeyError):
            found.add(int(account) if account.isdecimal() else pwd.getpwnam(account).pw_uid)
    return frozenset(found)
