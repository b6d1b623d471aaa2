"""Packages, as dpkg keeps them in a text and rpm, since 4.16, in SQLite.

Nothing is executed. rpm's older databases (Berkeley DB of RHEL 8, ndb of SLES 15) are not read: there the versions that
drivers and toolkits state of themselves still tell most.
"""

import contextlib
import errno
import sqlite3
from pathlib import Path

from exporter.core.facts import packages as parse
from exporter.probes.base import Fact, Found, Host, Probe

_DPKG = "/var/lib/dpkg/status"
_DPKG_BYTES = 64 << 20  # 2 to 10 MB on a node with everything installed
_RPM = ("/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite")


def _look(host: Host) -> Found:
    versions = parse.dpkg_versions(host.read(_DPKG, most=_DPKG_BYTES) or "")
    for path in _RPM:
        if host.exists(path):
            versions = {**_rpm_versions(host.real(path)), **versions}
    return Found(facts=parse.package_facts(versions))


def _rpm_versions(database: Path) -> dict[str, str]:
    # immutable: without locks, and without the journal files that a reader of a database in use would leave behind.
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            numbers = [n for name, n in connection.execute("SELECT key, hnum FROM Name") if parse.wanted(str(name))]
            headers = (connection.execute("SELECT blob FROM Packages WHERE hnum = ?", (n,)).fetchone() for n in numbers)
            return dict(found for (header,) in headers if (found := parse.rpm_version(header)))
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"{database}: {error}") from None


PACKAGES = Probe(
    look=_look,
    facts={
        **{
            name: Fact(f"package: {fact.meaning}", f"{_DPKG} or {_RPM[1]}: {fact.names.replace(' ', ', ')}")
            for name, fact in parse.FACTS.items()
        },
        "rocm_packages": Fact(
            "the ROCm releases that installed packages come from; several are a mix", f"{_DPKG} or {_RPM[1]}"
        ),
    },
)
