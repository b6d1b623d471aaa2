"""Service accounts: users that write logs for others, so the owner of such a log does not identify the job's user."""

import contextlib
import pwd
from collections.abc import Iterable

# Container runtimes and log collectors write as root, some schedulers as a user of their own, root over NFS as nobody.
SERVICE_ACCOUNTS = ("root", "slurm", "nobody")


def uids_of(accounts: Iterable[str]) -> frozenset[int]:
    """The user ids of accounts given by name or number. Names unknown on this machine are ignored: they own no files here."""
    uids = set()
    for account in accounts:
        with contextlib.suppress(KeyError):
            uids.add(int(account) if account.isdecimal() else pwd.getpwnam(account).pw_uid)
    return frozenset(uids)
