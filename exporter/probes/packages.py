"""Packages from the databases of dpkg (text) and rpm since 4.16 (SQLite).

Older rpm databases (Berkeley DB of RHEL 8, ndb of SLES 15) are unsupported; there the versions of drivers and toolkits
remain.
"""

import contextlib
import errno
import sqlite3
from pathlib import Path

from exporter.core.facts import packages as parse
from exporter.probes.base import Fact, Host, Probe, ProbeResult

_DPKG = "/var/lib/dpkg/status"
_DPKG_BYTES = 64 << 20  # 2 to 10 MB on a node with everything installed
_RPM = ("/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite")


def _collect(host: Host) -> ProbeResult:
    versions = parse.dpkg_versions(host.read(_DPKG, most=_DPKG_BYTES) or "")
    for path in _RPM:
        if host.exists(path):
            versions = {**_rpm_versions(host.real(path)), **versions}
    return ProbeResult(facts=parse.package_facts(versions))


def _rpm_versions(database: Path) -> dict[str, str]:
    # immutable: without locks and journal files.
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            numbers = [n for name, n in connection.execute("SELECT key, hnum FROM Name") if parse.wanted(str(name))]
            headers = (connection.execute("SELECT blob FROM Packages WHERE hnum = ?", (n,)).fetchone() for n in numbers)
            return dict(found for (header,) in headers if (found := parse.rpm_version(header)))
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"{database}: {error}") from None


PACKAGES = Probe(
    collect=_collect,
    facts={
        **{
            name: Fact(f"package: {fact.meaning}", f"{_DPKG} or {_RPM[1]}: {fact.names.replace(' ', ', ')}")
            for name, fact in parse.FACTS.items()
        },
        "rocm_packages": Fact("ROCm releases of the installed packages; several are a mix", f"{_DPKG} or {_RPM[1]}"),
    },
)
